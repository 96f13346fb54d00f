"""What a folder holds, as far as it can be read: a report of a broken or half-written folder shows the rest."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airprune import files
from airprune.errors import AirpruneError
from airprune.paper.training import MEASURES
from airprune.runs.layout import RunFolder, record_in
from airprune.scenario import Scenario

Row = dict[str, Any]

MAX_TEXT = 200_000
_SEED_FOLDER = re.compile(r"(?P<variant>.+)-seed(?P<seed>\d{1,19})", re.DOTALL)
# Beyond what any run measures; larger ones would overflow in a picture's arithmetic.
_LARGEST = 1e30


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run folder.

    Attributes:
      scenario: None if scenario.toml is missing or wrong.
      rounds: one row of numbers per global round; None where a measure is missing or no number.
      num_spoilt: lines of records.jsonl that are left out.
    """

    path: Path
    scenario: Scenario | None
    scenario_text: str
    records: list[dict[str, Any]]
    rounds: list[Row]
    num_spoilt: int
    environment: dict[str, Any]
    is_finished: bool

    @property
    def last(self) -> Row:
        return self.rounds[-1] if self.rounds else {}

    @property
    def state(self) -> str:
        if self.is_finished:
            return "finished"
        of = f" of {self.scenario.rounds.global_rounds}" if self.scenario else ""
        return f"unfinished: {len(self.rounds)}{of} global rounds"


@dataclass(frozen=True, kw_only=True)
class EdgeRound:
    """One edge round: lists over its devices, and one row per edge."""

    global_round: int
    edge_round: int
    device: list[int]
    edge: list[int]
    fate: list[str]
    bandwidth_share: np.ndarray
    pruning_ratio: np.ndarray
    compute_s: np.ndarray
    uplink_s: np.ndarray
    edges: list[Row]

    def rows(self) -> list[Row]:
        """The devices as a tidy table."""
        numbers = ("bandwidth_share", "pruning_ratio", "compute_s", "uplink_s")
        return [
            {
                "device": self.device[i],
                "edge": self.edge[i],
                "fate": self.fate[i],
                **{name: float(getattr(self, name)[i]) for name in numbers},
            }
            for i in range(len(self.device))
        ]


def is_run(path: Path) -> bool:
    return (path / "scenario.toml").is_file() or (path / "records.jsonl").is_file()


def seed_runs(path: Path) -> dict[tuple[str, int], Path]:
    """(variant, seed) → run folder, variants in alphabetical order, seeds ascending."""
    found = {}
    for child in path.iterdir():
        match = _SEED_FOLDER.fullmatch(child.name)
        if match and is_run(child):
            found[writable(match["variant"]), int(match["seed"])] = child
    return dict(sorted(found.items()))


def read_run(path: Path) -> Run:
    folder = RunFolder(path)
    folder.check()
    lines = folder.record_lines()
    records = [record for line in lines if (record := record_in(line))]
    return Run(
        path=path,
        scenario=_scenario(folder),
        scenario_text=read_text(folder.scenario_file),
        records=records,
        rounds=_rounds(records),
        num_spoilt=sum(bool(line.strip()) for line in lines) - len(records),
        environment=_environment(path / "environment.json"),
        is_finished=folder.is_finished,
    )


def last_edge_round(records: list[dict[str, Any]]) -> EdgeRound | None:
    """The last edge round whose lists can be read."""
    for record in reversed(records):
        if record["kind"] == "edge" and (found := edge_round(record)) is not None:
            return found
    return None


def edge_round(record: Mapping[str, Any]) -> EdgeRound | None:
    """The edge round of a record; None if its lists cannot be read."""
    try:
        return _edge_round(record)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def edge_rows(record: Mapping[str, Any]) -> list[Row]:
    """Status, waiting time, price and coverage of every edge of an edge round; empty if they cannot be read."""
    try:
        return _edges(record)
    except (KeyError, TypeError):
        return []


def round_row(record: Mapping[str, Any]) -> Row:
    """The numbers of a global round; None where a measure is missing or no number."""
    return {name: number_in(record, name) for name in (*MEASURES, "participants", "left_out")}


def number_in(record: Mapping[str, Any], name: str) -> float | None:
    """A field as a number; None if it is missing or anything else."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _LARGEST else None


def writable(value: object) -> str:
    """A value as text that can be written in UTF-8: half a surrogate pair cannot."""
    return str(value).encode(errors="replace").decode()


def read_text(path: Path) -> str:
    try:
        with files.open_to_read(path) as file:
            return file.read(MAX_TEXT).decode(errors="replace")
    except OSError:
        return ""


def read_json(path: Path) -> Any:
    try:
        return json.loads(files.read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return None


def _scenario(folder: RunFolder) -> Scenario | None:
    try:
        return folder.scenario()
    except (AirpruneError, OSError, ValueError):
        return None


def _environment(path: Path) -> dict[str, Any]:
    found = read_json(path)
    return found if isinstance(found, dict) else {}


def _rounds(records: list[dict[str, Any]]) -> list[Row]:
    rows = [round_row(record) for record in records if record["kind"] == "global"]
    return [row for row in rows if row["global_round"] is not None]


def _edge_round(record: Mapping[str, Any]) -> EdgeRound:
    device, edge = ([int(value) for value in record[name]] for name in ("device", "edge"))
    fate = [writable(value) for value in record["fate"]]
    columns = {name: _floats(record[name]) for name in ("bandwidth_share", "pruning_ratio", "compute_s", "uplink_s")}
    lengths = {len(edge), len(fate), *map(len, columns.values())}
    if not device or lengths != {len(device)}:
        raise ValueError
    return EdgeRound(
        global_round=int(record["global_round"]),
        edge_round=int(record["edge_round"]),
        device=device,
        edge=edge,
        fate=fate,
        edges=_edges(record),
        **columns,
    )


def _floats(values: list[Any]) -> np.ndarray:
    floats = np.array([math.nan if value is None else float(value) for value in values])
    return np.where(np.abs(floats) < _LARGEST, floats, math.nan)


def _edges(record: Mapping[str, Any]) -> list[Row]:
    coverage = {entry["edge"]: entry for entry in record.get("coverage") or [] if isinstance(entry, dict)}
    rows = []
    for i, edge in enumerate(record["edge_id"]):
        own = {name: _at(record.get(name), i) for name in ("edge_status", "edge_latency_s", "shadow_price")}
        covered = coverage.get(edge, {})
        rows.append(
            {
                "edge": edge,
                "status": own["edge_status"],
                "latency_s": number_in(own, "edge_latency_s"),
                "shadow_price": number_in(own, "shadow_price"),
                "min_count": number_in(covered, "min_count"),
                "num_uncovered": number_in(covered, "num_uncovered"),
            }
        )
    return rows


def _at(values: Any, i: int) -> Any:
    return values[i] if isinstance(values, list) and i < len(values) else None
