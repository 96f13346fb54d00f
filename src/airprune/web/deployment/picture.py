"""A deployment as the page shows it: fleet, alerts, jobs, rounds against deadlines, models.

Bounded like everything here: at most `MAX_NODES` nodes, `MAX_LISTED` jobs, models and alerts, and `MAX_POINTS` uploads.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airprune.deployment.calibration import Spread
from airprune.deployment.fleet.registry import FILE as REGISTRY_FILE
from airprune.deployment.fleet.registry import Delivery, Job
from airprune.deployment.status import NodeStatus, Status
from airprune.deployment.watch.uploads import DeviceUploads, clipped
from airprune.deployment.watch.view import RUNS, STATUS_FILE, Shown, View, Watched
from airprune.runs.followed import version_of
from airprune.text import printable
from airprune.web.deployment.uploads import POINT_COLUMNS, DrawnUploads

MAX_NODES = 1_000
MAX_LISTED = 100
MAX_WORDS = 400

_MAX_WATCHED = 16
_TIMES = ("planned_compute_s", "compute_s", "planned_uplink_s", "uplink_s")


@functools.lru_cache(maxsize=_MAX_WATCHED)
def watched(path: Path) -> Watched:
    """Returns the one watcher of a folder, shared by all who look at it."""
    return Watched(path, follow=DrawnUploads)


def picture(path: Path, name: str, job: int | None = None, known: str | None = None) -> dict[str, Any]:
    """Returns the deployment in this folder; only its version if the page knows that already.

    Args:
      name: of the folder, as addresses name it.
      job: whose uploads are shown.
      known: the version that the page has.
    """
    view = watched(path).look(job)
    version = _version(path, view)
    if version == known:
        return {"version": version}
    run = view.shown
    return {
        "name": name,
        "version": version,
        "is_fleet": watched(path).is_fleet,
        "now_s": time.time(),
        "status": None if view.status is None else _status(view.status),
        "trouble": _words(view.trouble.replace(str(path), name)),
        "counts": asdict(view.counts),
        "alerts": [{**asdict(one), "words": _words(one.words)} for one in view.alerts[:MAX_LISTED]],
        "nodes": _nodes(view),
        "jobs": [_job(one, path, name) for one in reversed(view.jobs[-MAX_LISTED:])],
        "models": [_model(one, view) for one in reversed(view.deliveries[-MAX_LISTED:])],
        "run": None if run is None else _run(run, name),
    }


def _version(path: Path, view: View) -> str:
    """Changes whenever there is something new to show."""
    files = [path / STATUS_FILE, path / REGISTRY_FILE]
    read: tuple[Any, ...] = ()
    if (run := view.shown) is not None:
        read = (run.job, run.uploads.num_bytes_read, run.uploads.num_bytes, run.uploads.fates.total())
        files.append(run.folder.inputs_file)
    facts = (read, [version_of(file) for file in files], [(alert.kind, alert.node) for alert in view.alerts])
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _status(status: Status) -> dict[str, Any]:
    return {
        **{key: getattr(status, key) for key in ("state", "global_round", "edge_round", "num_rounds", "updated_s")},
        "federation": clipped(printable(status.federation)),
        "age_s": status.age_s(),
        "is_stale": status.is_stale(),
    }


def _nodes(view: View) -> list[dict[str, Any]]:
    """Returns all nodes that the cloud knows; without its status, the devices that have uploaded."""
    found = view.nodes
    if not found and view.shown is not None:
        found = [_from_uploads(name, device) for name, device in view.shown.uploads.devices.items()]
    held = {model.name: model for model in view.held}
    return [_node(node, view, held) for node in found[:MAX_NODES]]


def _from_uploads(name: str, device: DeviceUploads) -> NodeStatus:
    assert device.last is not None
    fates = device.fates
    return NodeStatus(
        name=name, role="device", online=False, late=fates["late"], refused=fates["refused"], last_fate=device.last.fate
    )


def _node(node: NodeStatus, view: View, held: Mapping[str, Any]) -> dict[str, Any]:
    words = {key: clipped(value) if isinstance(value, str) else value for key, value in asdict(node).items()}
    uploads, model = view.uploads_of(node), held.get(node.name)
    found: dict[str, Any] = {**words, "model": None if model is None else model.version}
    if uploads is None or view.shown is None:
        return found
    return {
        **found,
        "speed": _spread(view.shown.seconds_per_sample(uploads)),
        "rate": _spread(uploads.rate_bps),
        "num_uploads": uploads.fates.total(),
        **{name: _median(uploads.spread(name)) for name in (*_TIMES, "compute_ratio", "uplink_ratio")},
    }


def _job(job: Job, path: Path, name: str) -> dict[str, Any]:
    has_run = (path / RUNS / Path(job.folder_name).name / "scenario.toml").is_file()
    return {
        **{key: getattr(job, key) for key in ("number", "state", "submitted_s", "started_s", "ended_s", "deliver")},
        "name": clipped(job.name),
        "reason": _words(job.reason),
        "run": f"{'' if name == '.' else f'{name}/'}{RUNS}/{job.folder_name}" if has_run else None,
    }


def _model(delivery: Delivery, view: View) -> dict[str, Any]:
    holders = [clipped(model.name) for model in view.held if model.version == delivery.version]
    wanted = [clipped(device) for device in delivery.devices[:MAX_LISTED]]
    return {**asdict(delivery), "devices": wanted, "holders": holders[:MAX_LISTED], "num_holders": len(holders)}


def _run(run: Shown, name: str) -> dict[str, Any]:
    file = run.uploads
    assert isinstance(file, DrawnUploads)
    ratios = {part: _ratios(file, f"{part}_ratio") for part in ("compute", "uplink")}
    rounds = [
        {"round": number, **vars(about), "fates": dict(about.fates)} for number, about in reversed(file.rounds.items())
    ]
    place = [] if run.job is None else [RUNS, run.folder.path.name]
    return {
        "name": "/".join(filter(lambda part: part != ".", [name, *place])) or ".",
        "job": run.job,
        "columns": POINT_COLUMNS,
        "points": file.points.items(),
        "num_points": file.points.total,
        "fates": dict(file.fates),
        "rounds": rounds,
        "num_rounds": file.num_rounds,
        **ratios,
        "measured_s": file.time.total_s,
        "num_spoilt": file.num_spoilt,
        "read_share": 1.0 if file.has_tail or not file.num_bytes else file.num_bytes_read / file.num_bytes,
    }


def _ratios(file: DrawnUploads, part: str) -> dict[str, Any] | None:
    rows = (row for device in file.devices.values() for row in device.recent)
    return _spread(Spread.of(getattr(row, part) for row in rows))


def _spread(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else asdict(spread)


def _median(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median


def _words(text: str) -> str:
    return printable(text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 1]}…")
