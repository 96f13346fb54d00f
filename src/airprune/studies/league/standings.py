"""A track's table: accuracy and costs of every method, and differences from the paper's method and from fp32."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from airprune.results.measures import TO_TARGET
from airprune.results.statistics import Estimate
from airprune.results.time_to_target import Costs
from airprune.studies.league.finished import FinishedRun, RunStatistics, over_seeds
from airprune.studies.league.lineup import FP32, SEED, WHOLE, Absent, Entry
from airprune.studies.league.statistics import BySeed, Gap, gap, holm, ranks
from airprune.studies.league.tracks import Track
from airprune.studies.league.tuning import Knobs

# Bits to the target on links that `TO_TARGET` does not separate, and their names in `LinkBits`.
LINKS = {"backhaul_bits_to_target": "backhaul", "d2d_bits_to_target": "d2d"}
# The target as a share of the accuracy that no pruning ends with.
TARGET_SHARE = 0.95


class By(StrEnum):
    """The point at which accuracies are compared."""

    TIME = "time"
    """The seconds that the paper's method takes for its rounds."""
    ROUNDS = "rounds"
    """All rounds."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The finished runs of a method or reference line, before it is compared.

    Attributes:
      runs: by seed, finished ones only.
      knobs: its tuned values; None if untuned.
      num_tuned: how many combinations were tried.
      untuned: its runs with the learning rate of all, by seed; empty if it was not tuned.
      trouble: why runs are missing.
    """

    entry: Entry
    runs: Mapping[int, FinishedRun]
    knobs: Knobs | None = None
    num_tuned: int = 0
    untuned: Mapping[int, FinishedRun] = field(default_factory=dict)
    trouble: str = ""

    def accuracy(self, by: By, horizon_s: float) -> BySeed:
        """Returns the accuracy by seed; empty unless every seed has one."""
        return _whole(
            {seed: run.accuracy if by is By.ROUNDS else run.accuracy_by(horizon_s) for seed, run in self.runs.items()}
        )

    @property
    def num_diverged(self) -> int:
        return sum(run.has_diverged for run in self.runs.values())


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
      accuracy: by point of comparison; None where there is no model yet.
      costs: to the target, by the names of `TO_TARGET` and `LINKS`; None for references without costs.
      gaps: to the paper's method and to fp32.
      ranks: None without intervals, and for references.
      ends_early: True if it has run all its rounds so early that another would have fitted into the compared time.
    """

    result: Result
    accuracy: Mapping[By, Estimate | None]
    costs: Mapping[str, Costs] | None
    gaps: Mapping[tuple[By, str], Gap | None]
    ranks: Mapping[By, int | None]
    untuned: Estimate | None
    statistics: RunStatistics
    state_bytes: int
    ends_early: bool

    @property
    def entry(self) -> Entry:
        return self.result.entry


@dataclass(frozen=True, kw_only=True)
class Standings:
    """One track, best first.

    Attributes:
      target: the accuracy that costs are given for; None if the reference without pruning has no finished run.
    """

    track: Track
    seeds: tuple[int, ...]
    horizon_s: float
    target: float | None
    rows: tuple[Row, ...]
    absent: tuple[Absent, ...]

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.entry.name == name), None)


def standings(
    track: Track,
    results: Sequence[Result],
    *,
    seeds: Sequence[int],
    horizon_s: float,
    absent: Sequence[Absent] = (),
) -> Standings:
    """Returns the ranked table of one track."""
    by_name = {result.entry.name: result for result in results}
    whole = by_name[WHOLE].accuracy(By.ROUNDS, horizon_s) if WHOLE in by_name else {}
    target = TARGET_SHARE * Estimate.of(list(whole.values())).mean if whole else None
    accuracy = {name: {by: result.accuracy(by, horizon_s) for by in By} for name, result in by_name.items()}
    ranked = [name for name, result in by_name.items() if result.entry.is_method]
    gaps = {(by, other): _gaps(accuracy, ranked, by, other) for by in By for other in (SEED, FP32)}
    rank_of = {by: ranks({name: accuracy[name][by] for name in ranked}) for by in By}
    rows = [
        Row(
            result=result,
            accuracy={by: _estimate(accuracy[name][by]) for by in By},
            costs=_costs(result, target) if result.entry.has_costs else None,
            gaps={key: found.get(name) for key, found in gaps.items()},
            ranks={by: rank_of[by].get(name) for by in By},
            untuned=_estimate(_whole({seed: run.accuracy for seed, run in result.untuned.items()})),
            statistics=over_seeds([run.conduct for run in result.runs.values()]),
            state_bytes=result.entry.state_bytes() if result.entry.has_costs else 0,
            ends_early=any(run.has_room_by(horizon_s) for run in result.runs.values()),
        )
        for name, result in by_name.items()
    ]
    return Standings(
        track=track,
        seeds=tuple(seeds),
        horizon_s=horizon_s,
        target=target,
        rows=tuple(sorted(rows, key=_place)),
        absent=tuple(absent),
    )


def _place(row: Row) -> tuple[bool, bool, float, float]:
    """Sorts methods before references, then by rank, then by accuracy after equal time."""
    rank, mean, entry = row.ranks[By.TIME], row.accuracy[By.TIME], row.entry
    return not entry.is_method, not entry.has_costs, rank or 0, math.inf if mean is None else -mean.mean


def _whole(found: BySeed) -> BySeed:
    """Returns the values; empty unless every seed has a number."""
    return {} if any(map(math.isnan, found.values())) else found


def _estimate(values: BySeed) -> Estimate | None:
    return Estimate.of(list(values.values())) if values else None


def _gaps(
    accuracy: Mapping[str, Mapping[By, BySeed]], ranked: Sequence[str], by: By, other: str
) -> dict[str, Gap | None]:
    """Returns the gap of every method to another one, corrected for the number of methods."""
    if other not in accuracy:
        return {}
    found = {name: gap(accuracy[name][by], accuracy[other][by]) for name in ranked if name != other}
    tested = [name for name, one in found.items() if one is not None]
    for name, p_holm in zip(tested, holm([one.p for one in found.values() if one is not None]), strict=True):
        one = found[name]
        found[name] = None if one is None else dataclasses.replace(one, p_holm=p_holm)
    return found


def _costs(result: Result, target: float | None) -> dict[str, Costs]:
    runs, goal = ({}, 0.0) if target is None else (result.runs, target)
    tests = {seed: run.tests for seed, run in runs.items()}
    by_link = {
        name: Costs.of({seed: run.tests_by(link) for seed, run in runs.items()}, goal, "bits_to_target")
        for name, link in LINKS.items()
    }
    return {measure: Costs.of(tests, goal, measure) for measure in TO_TARGET} | by_link
