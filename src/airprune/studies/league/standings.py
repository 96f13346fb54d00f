"""A division's table: what every entrant came to, and how it differs from the paper's method and from fp32."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from airprune.results.measures import TO_TARGET
from airprune.results.statistics import Estimate
from airprune.results.time_to_target import Costs
from airprune.studies.league.divisions import Division
from airprune.studies.league.lineup import FP32, SEED, WHOLE, Absent, Entrant
from airprune.studies.league.measured import Played, RunStatistics, over_seeds
from airprune.studies.league.statistics import BySeed, Gap, gap, holm, ranks
from airprune.studies.league.tuning import Trial

# Bits to the target on links that `TO_TARGET` does not tell apart, and what `LinkBits` calls these.
LINKS = {"backhaul_bits_to_target": "backhaul", "d2d_bits_to_target": "d2d"}
# Of the accuracy that no pruning ends with.
TARGET_SHARE = 0.95


class By(StrEnum):
    """After what accuracies are compared."""

    TIME = "time"
    """The seconds that the paper's method takes for its rounds."""
    ROUNDS = "rounds"
    """All rounds."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What an entrant has played, before it is compared.

    Attributes:
      runs: by seed, finished ones only.
      trial: the knobs it was given; None untuned.
      num_trials: how many it had to choose from.
      untuned: its runs with the learning rate of all, by seed; empty if it was not tuned.
      trouble: why runs are missing.
    """

    entrant: Entrant
    runs: Mapping[int, Played]
    trial: Trial | None = None
    num_trials: int = 0
    untuned: Mapping[int, Played] = field(default_factory=dict)
    trouble: str = ""

    def accuracy(self, by: By, horizon_s: float) -> BySeed:
        """By seed; empty unless every seed has one."""
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
      accuracy: by what they are compared after; None where there is no model yet.
      costs: to the target, by the names of `TO_TARGET` and `LINKS`; None for references without costs.
      gaps: to the paper's method and to fp32.
      ranks: None without intervals, and for references.
      ends_early: whether it has run all its rounds so early that another would have fitted into the time that is
        compared.
    """

    result: Result
    accuracy: Mapping[By, Estimate | None]
    costs: Mapping[str, Costs] | None
    gaps: Mapping[tuple[By, str], Gap | None]
    ranks: Mapping[By, int | None]
    untuned: Estimate | None
    conduct: RunStatistics
    state_bytes: int
    ends_early: bool

    @property
    def entrant(self) -> Entrant:
        return self.result.entrant


@dataclass(frozen=True, kw_only=True)
class Standings:
    """One division, best first.

    Attributes:
      target: accuracy that costs are told for; None if no pruning has not been played.
    """

    division: Division
    seeds: tuple[int, ...]
    horizon_s: float
    target: float | None
    rows: tuple[Row, ...]
    absent: tuple[Absent, ...]

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.entrant.name == name), None)


def standings(
    division: Division,
    results: Sequence[Result],
    *,
    seeds: Sequence[int],
    horizon_s: float,
    absent: Sequence[Absent] = (),
) -> Standings:
    by_name = {result.entrant.name: result for result in results}
    whole = by_name[WHOLE].accuracy(By.ROUNDS, horizon_s) if WHOLE in by_name else {}
    target = TARGET_SHARE * Estimate.of(list(whole.values())).mean if whole else None
    accuracy = {name: {by: result.accuracy(by, horizon_s) for by in By} for name, result in by_name.items()}
    playing = [name for name, result in by_name.items() if result.entrant.is_method]
    gaps = {(by, other): _gaps(accuracy, playing, by, other) for by in By for other in (SEED, FP32)}
    placed = {by: ranks({name: accuracy[name][by] for name in playing}) for by in By}
    rows = [
        Row(
            result=result,
            accuracy={by: _estimate(accuracy[name][by]) for by in By},
            costs=_costs(result, target) if result.entrant.has_costs else None,
            gaps={key: found.get(name) for key, found in gaps.items()},
            ranks={by: placed[by].get(name) for by in By},
            untuned=_estimate(_whole({seed: run.accuracy for seed, run in result.untuned.items()})),
            conduct=over_seeds([run.conduct for run in result.runs.values()]),
            state_bytes=result.entrant.state_bytes() if result.entrant.has_costs else 0,
            ends_early=any(run.has_room_by(horizon_s) for run in result.runs.values()),
        )
        for name, result in by_name.items()
    ]
    return Standings(
        division=division,
        seeds=tuple(seeds),
        horizon_s=horizon_s,
        target=target,
        rows=tuple(sorted(rows, key=_place)),
        absent=tuple(absent),
    )


def _place(row: Row) -> tuple[bool, bool, float, float]:
    """Methods before references, then by rank, then by accuracy after equal time."""
    rank, mean, entrant = row.ranks[By.TIME], row.accuracy[By.TIME], row.entrant
    return not entrant.is_method, not entrant.has_costs, rank or 0, math.inf if mean is None else -mean.mean


def _whole(found: BySeed) -> BySeed:
    """Empty unless every seed has a number."""
    return {} if any(map(math.isnan, found.values())) else found


def _estimate(values: BySeed) -> Estimate | None:
    return Estimate.of(list(values.values())) if values else None


def _gaps(
    accuracy: Mapping[str, Mapping[By, BySeed]], playing: Sequence[str], by: By, other: str
) -> dict[str, Gap | None]:
    """Of every method to another one, corrected for their number."""
    if other not in accuracy:
        return {}
    found = {name: gap(accuracy[name][by], accuracy[other][by]) for name in playing if name != other}
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
