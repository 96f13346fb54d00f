"""A run on real machines as the page draws it: who is there, arrivals against the deadline, predicted against measured.

Bounded like everything here: at most `MAX_POINTS` uploads are drawn, evenly thinned, and `MAX_NODES` nodes listed.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from airprune import files
from airprune.deployment.calibration import Spread
from airprune.deployment.status import NodeStatus, Status, read_status
from airprune.runs.followed import Followed
from airprune.runs.layout import RunFolder
from airprune.runs.measured import FATES, MeasuredRow, MeasuredTime, row_in
from airprune.web.runs.thinning import Thinned

MAX_POINTS = 2_000
MAX_NODES = 1_000
MAX_TEXT = 80
# Ratios that are kept of each device, for its median.
MAX_RATIOS = 100

_MAX_FOLLOWED = 16
_OTHER = "other"
POINT_COLUMNS = (
    "round", "name", "fate",
    "arrived_s", "deadline_s", "planned_compute_s", "compute_s", "planned_uplink_s", "uplink_s",
)  # fmt: skip


class Device:
    """Gathers the outcomes of one device's uploads."""

    def __init__(self) -> None:
        self.fates: Counter[str] = Counter()
        self.last: MeasuredRow | None = None
        self.compute: Thinned[float | None] = Thinned(MAX_RATIOS)
        self.uplink: Thinned[float | None] = Thinned(MAX_RATIOS)

    def add(self, row: MeasuredRow, fate: str) -> None:
        self.fates[fate] += 1
        self.last = row
        for kept, ratio in ((self.compute, row.compute_ratio), (self.uplink, row.uplink_ratio)):
            if ratio is not None:
                kept.append(ratio)


class MeasuredFile(Followed):
    """Follows a run's measured.jsonl.

    Attributes:
      points: uploads, in the order of `POINT_COLUMNS`.
      devices: the first `MAX_NODES` of them, by name.
      fates: of all uploads.
      time: of all edge rounds.
      num_spoilt: lines that are no row.
    """

    max_bytes_at_once = 16 * 2**20  # about a second

    def clear(self) -> None:
        self.points: Thinned[tuple[Any, ...]] = Thinned(MAX_POINTS)
        self.devices: dict[str, Device] = {}
        self.fates: Counter[str] = Counter()
        self.time = MeasuredTime()
        self.num_spoilt = 0

    def is_whole(self, line: bytes) -> bool:
        return row_in(line) is not None

    def take(self, line: bytes, place: int, *, is_long: bool) -> None:
        row = None if is_long else row_in(line)
        if row is None:
            self.num_spoilt += 1
            return
        name = _clipped(str(row.device) if row.name is None else row.name)
        fate = row.fate if row.fate in FATES else _OTHER
        self.fates[fate] += 1
        self.time.add(row)
        self.points.append((row.round, name, fate, *(getattr(row, column) for column in POINT_COLUMNS[3:])))
        if name in self.devices or len(self.devices) < MAX_NODES:
            self.devices.setdefault(name, Device()).add(row, fate)


@functools.lru_cache(maxsize=_MAX_FOLLOWED)
def measured_file(path: Path) -> MeasuredFile:
    """The one follower of a file, shared by all who look at it."""
    return MeasuredFile(path)


def version(path: Path | None) -> str | None:
    """Changes whenever a deployment has something new to tell; None if the folder is no deployment's."""
    if path is None:
        return None
    folder = RunFolder(path)
    if not files.is_regular(folder.measured_file):
        return None
    file = measured_file(folder.measured_file)
    file.refresh()
    return f"{file.num_bytes_read}.{file.num_bytes}.{file.fates.total()}.{_changed(folder.status_file)}"


def _changed(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0


def deployment(path: Path, name: str) -> dict[str, Any]:
    told = version(path)
    if told is None:
        raise HTTPException(404, f"{_clipped(name)} has no measured.jsonl: it did not run on real machines.")
    folder = RunFolder(path)
    file, status = measured_file(folder.measured_file), read_status(folder)
    points = file.points.items()
    ratios = {part: _ratios(file.devices, part) for part in ("compute", "uplink")}
    return {
        "name": name,
        "version": told,
        "status": None if status is None else _status(status),
        "nodes": _nodes(file.devices, status),
        "columns": POINT_COLUMNS,
        "points": points,
        "num_points": file.points.total,
        "fates": dict(file.fates),
        **ratios,
        "measured_s": file.time.total_s,
        "num_spoilt": file.num_spoilt,
        "read_share": 1.0 if file.has_tail or not file.num_bytes else file.num_bytes_read / file.num_bytes,
    }


def _status(status: Status) -> dict[str, Any]:
    return {
        **{key: getattr(status, key) for key in ("state", "global_round", "edge_round", "num_rounds")},
        "federation": _clipped(status.federation),
        "age_s": status.age_s(),
        "is_stale": status.is_stale(),
        **{f"{role}s": [status.online(role), status.count(role)] for role in ("edge", "device")},
    }


def _ratios(devices: Mapping[str, Device], part: str) -> dict[str, Any] | None:
    spread = Spread.of(ratio for device in devices.values() for ratio in getattr(device, part).items())
    return None if spread is None else asdict(spread)


def _nodes(devices: Mapping[str, Device], status: Status | None) -> list[dict[str, Any]]:
    """Everybody that the cloud knows; without its word, whoever has uploaded."""
    known = list(status.nodes) if status is not None else [_from_rows(name, device) for name, device in devices.items()]
    return [_node(node, devices.get(_clipped(node.name))) for node in known[:MAX_NODES]]


def _from_rows(name: str, device: Device) -> NodeStatus:
    assert device.last is not None
    return NodeStatus(name=name, role="device", edge=str(device.last.edge), online=False, rtt_s=device.last.rtt_s)


def _node(node: NodeStatus, device: Device | None) -> dict[str, Any]:
    told = {key: _clipped(value) if isinstance(value, str) else value for key, value in asdict(node).items()}
    if device is None or node.role != "device" or device.last is None:
        return told
    spreads = {part: Spread.of(getattr(device, part).items()) for part in ("compute", "uplink")}
    return {
        **told,
        "late": device.fates["late"],
        "refused": device.fates["refused"],
        "last_fate": _clipped(device.last.fate),
        **{part: None if spread is None else spread.median for part, spread in spreads.items()},
    }


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
