"""Reads a folder as far as it can be read: a report of a broken or half-written folder shows the rest.

Needs neither torch nor a drawing library; a scenario is read when it is first used.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune import files
from airprune.errors import AirpruneError
from airprune.results.measures import CURVE_COLUMNS, DEPLOYED_MEASURES, DEVICE_COLUMNS, MEASURES, Measure
from airprune.rounds.records import EdgeRecord, GlobalRecord, Record, records_version
from airprune.runs.layout import RunFolder
from airprune.runs.lines import read_json

if TYPE_CHECKING:
    from airprune.scenario import Scenario

Row = dict[str, Any]

MAX_TEXT = 200_000
# How many devices a figure of one edge round shows.
MAX_BARS = 60
_SEED_FOLDER = re.compile(r"(?P<variant>.+)-seed(?P<seed>\d{1,19})", re.DOTALL)
# Beyond what any run measures; larger ones would overflow in a figure's arithmetic.
_LARGEST = 1e30


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run folder.

    Attributes:
      rounds: one row of numbers per global round; None where a measure is missing or no number.
      num_damaged: lines of records.jsonl that are left out.
      version: of its records.
    """

    path: Path
    scenario_text: str
    records: list[Record]
    rounds: list[Row]
    num_damaged: int
    environment: dict[str, Any]
    version: int
    is_finished: bool
    is_deployed: bool

    @cached_property
    def _scenario_or_trouble(self) -> tuple[Scenario | None, str]:
        return scenario_or_trouble(self.path)

    @property
    def scenario(self) -> Scenario | None:
        """None if scenario.toml is missing or wrong, e.g. names a component that is not registered here."""
        return self._scenario_or_trouble[0]

    @property
    def trouble(self) -> str:
        """Says in one sentence why there is no scenario."""
        return self._scenario_or_trouble[1]

    @property
    def import_words(self) -> list[str]:
        """The options of a command that repeats it, if it was started with a user's own files."""
        files = self.environment.get("imported")
        paths = [file.get("path") for file in files if isinstance(file, dict)] if isinstance(files, list) else []
        return [word for path in paths if isinstance(path, str) for word in ("--import", writable(path))]

    @property
    def measures(self) -> Mapping[str, Measure]:
        """The measures of its numbers."""
        return DEPLOYED_MEASURES if self.is_deployed else MEASURES

    @property
    def last(self) -> Row:
        return self.rounds[-1] if self.rounds else {}

    @property
    def divergence(self) -> str:
        """A sentence that names the models that are not finite numbers; empty unless training diverged."""
        last = self.records[-1] if self.records else None
        return (last.diverged or "") if isinstance(last, GlobalRecord) else ""

    @property
    def badge_kind(self) -> str:
        return "good" if self.is_finished else "bad" if self.divergence else "fair"

    @property
    def state(self) -> str:
        if self.is_finished:
            return "finished"
        if self.divergence:
            return "diverged"
        of = f" of {self.scenario.rounds.global_rounds}" if self.scenario else ""
        return f"unfinished: {len(self.rounds)}{of} global rounds"


@dataclass(frozen=True, kw_only=True)
class EdgeRound:
    """One edge round: lists over its devices, and one row per edge."""

    global_round: int
    edge_round: int
    device: Sequence[int]
    edge: Sequence[int]
    fate: Sequence[str]
    bandwidth_share: np.ndarray
    pruning_ratio: np.ndarray
    compute_s: np.ndarray
    uplink_s: np.ndarray
    edges: list[Row]
    own_deadline_s: float | None = None
    sampled_of: int | None = None

    @property
    def num_devices(self) -> int:
        """The number of devices of the round, even if the lists have a sample of them."""
        return len(self.device) if self.sampled_of is None else self.sampled_of

    def deadline_s(self, scenario: Scenario | None) -> float | None:
        """The round's own, if deadlines tune themselves, else the scenario's."""
        fixed_s = scenario.plan.deadline_s if scenario else None
        return self.own_deadline_s if fixed_s == "auto" else fixed_s

    def rows(self) -> list[Row]:
        """Returns the devices as a tidy table."""
        return [
            {
                "device": self.device[i],
                "edge": self.edge[i],
                "fate": self.fate[i],
                **{name: float(getattr(self, name)[i]) for name in DEVICE_COLUMNS},
            }
            for i in range(len(self.device))
        ]

    def slowest(self, limit: int) -> list[int]:
        """Returns the places of all devices, or of so many of the slowest; ordered by edge."""
        places = list(range(len(self.device)))
        if len(places) > limit:
            latency = np.nan_to_num(self.compute_s + self.uplink_s)
            places = sorted(places, key=lambda i: -latency[i])[:limit]
        return sorted(places, key=lambda i: (self.edge[i], self.device[i]))


def is_run(path: Path) -> bool:
    return (path / "scenario.toml").is_file() or (path / "records.jsonl").is_file()


def seed_runs(path: Path) -> dict[tuple[str, int], Path]:
    """Returns (variant, seed) → run folder, variants in their order, others after them by name, seeds ascending."""
    found = {}
    for child in path.iterdir():
        names = variant_and_seed(child.name)
        if names and files.is_folder(child) and is_run(child):
            found[names] = child
    place = {name: index for index, name in enumerate(variant_order(path))}
    return dict(sorted(found.items(), key=lambda item: (place.get(item[0][0], len(place)), item[0])))


def variant_and_seed(name: str) -> tuple[str, int] | None:
    """Returns variant and seed from the name of a run folder in a comparison or a sweep; None for another name."""
    match = _SEED_FOLDER.fullmatch(name)
    return (writable(match["variant"]), int(match["seed"])) if match else None


def variant_order(path: Path) -> list[str]:
    """Reads the folder names of a comparison's or a sweep's variants in their order; empty if it is not recorded."""
    for note in ("comparison.json", "sweep.json"):
        found = read_json(path / note)
        names = found.get("variants") if isinstance(found, dict) else None
        if isinstance(names, list):
            return [name for name in names if isinstance(name, str)]
    return []


def read_run(path: Path) -> Run:
    folder = RunFolder(path)
    folder.check()
    environment = folder.environment()
    version = records_version(environment)
    records, num_damaged = folder.reader.read(version=version)
    return Run(
        path=path,
        scenario_text=read_text(folder.scenario_file),
        records=records,
        rounds=[round_row(record) for record in records if isinstance(record, GlobalRecord)],
        num_damaged=num_damaged,
        environment=environment,
        version=version,
        is_finished=folder.is_finished,
        is_deployed=folder.is_deployed,
    )


def scenario_or_trouble(path: Path) -> tuple[Scenario | None, str]:
    """Reads the scenario of a run folder; or returns None and why it cannot be read, in one sentence."""
    try:
        return RunFolder(path).scenario(), ""
    except AirpruneError as error:
        return None, writable(error)
    except (OSError, ValueError) as error:
        return None, f"scenario.toml cannot be read as a scenario: {writable(error)}."


def troubles(folder: Path) -> list[str]:
    """Returns why scenarios in a run or comparison folder cannot be read, each reason once."""
    paths = [folder] if is_run(folder) else [*seed_runs(folder).values()]
    found = [scenario_or_trouble(path)[1] for path in paths if os.path.lexists(path / "scenario.toml")]
    return list(dict.fromkeys(filter(None, found)))


def target_of(runs: Iterable[Run]) -> float | None:
    """Returns the first `rounds.target_accuracy` that a scenario names."""
    scenarios = (run.scenario for run in runs)
    targets = (scenario.rounds.target_accuracy for scenario in scenarios if scenario is not None)
    return next((target for target in targets if target is not None), None)


def last_edge_round(records: Sequence[Record]) -> EdgeRound | None:
    """Returns the last edge round whose lists have equal lengths."""
    for record in reversed(records):
        if isinstance(record, EdgeRecord) and (found := edge_round(record)) is not None:
            return found
    return None


def edge_round(record: EdgeRecord) -> EdgeRound | None:
    """Returns the edge round of a record; None if its lists differ in length."""
    columns = {name: getattr(record, name) for name in DEVICE_COLUMNS}
    lengths = {len(record.edge), len(record.fate), *map(len, columns.values())}
    if not record.device or lengths != {len(record.device)}:
        return None
    return EdgeRound(
        global_round=record.global_round,
        edge_round=record.edge_round,
        device=record.device,
        edge=record.edge,
        fate=[writable(fate) for fate in record.fate],
        edges=edge_rows(record),
        own_deadline_s=drawable(record.deadline_s),
        sampled_of=record.sampled_of,
        **{name: _floats(values) for name, values in columns.items()},
    )


def edge_rows(record: EdgeRecord) -> list[Row]:
    """Returns status, waiting time, downlink, price and coverage of every edge of an edge round."""
    coverage = {entry.edge: entry for entry in record.coverage}
    rows = []
    for i, edge in enumerate(record.edge_id):
        covered = coverage.get(edge)
        rows.append(
            {
                "edge": edge,
                "status": _at(record.edge_status, i),
                "edge_latency_s": drawable(_at(record.edge_latency_s, i)),
                "downlink_s": drawable(_at(record.downlink_s or (), i)),
                "shadow_price": drawable(_at(record.shadow_price, i)),
                "min_count": covered.min_count if covered else None,
                "num_uncovered": covered.num_uncovered if covered else None,
            }
        )
    return rows


def round_row(record: GlobalRecord) -> Row:
    """Returns the numbers of a global round; None where a measure is missing or no number."""
    return {name: drawable(getattr(record, name)) for name in (*CURVE_COLUMNS, "participants", "left_out")}


def drawable(value: float | None) -> float | None:
    """Returns a number that figures and tables can show, or None."""
    return float(value) if value is not None and abs(value) < _LARGEST else None


def writable(value: object) -> str:
    """Returns a value as text that can be written in UTF-8: half a surrogate pair cannot."""
    return str(value).encode(errors="replace").decode()


def read_text(path: Path) -> str:
    try:
        with files.open_to_read(path) as file:
            return file.read(MAX_TEXT).decode(errors="replace")
    except OSError:
        return ""


def differences(scenarios: Mapping[str, Scenario]) -> dict[str, dict[str, Any]]:
    """Returns key → value by name, for every key in which at least two of the scenarios differ."""
    values: dict[str, dict[str, Any]] = {}
    for name, scenario in scenarios.items():
        first = next(iter(scenarios.values()))
        for key, mine, theirs in first.diff(scenario):
            values.setdefault(key, dict.fromkeys(scenarios, mine))[name] = theirs
    return values


def _floats(values: Sequence[float | None]) -> np.ndarray:
    floats = np.array([math.nan if value is None else float(value) for value in values])
    return np.where(np.abs(floats) < _LARGEST, floats, math.nan)


def _at(values: Sequence[Any], i: int) -> Any:
    return values[i] if i < len(values) else None
