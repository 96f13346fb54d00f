"""A track's table: accuracy and costs of every method, and differences from the paper's method and from fp32."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airprune.methods import METHODS
from airprune.results.measures import TO_TARGET
from airprune.results.statistics import Estimate
from airprune.results.time_to_target import Costs
from airprune.studies.league.finished import ALL_LINKS, FinishedRun, RunStatistics, over_seeds
from airprune.studies.league.lineup import FP32, SEED, WHOLE, Absent, Entry
from airprune.studies.league.statistics import BySeed, Gap, Rank, gap, holm, ranks
from airprune.studies.league.tracks import By, Track
from airprune.studies.league.tuning import WHOLE_MODELS, Knobs

__all__ = ["LINKS", "TARGET_SHARE", "By", "Result", "Row", "Standings", "standings"]

# Bits to the target on links that `TO_TARGET` does not separate, and their names in `LinkBits`.
LINKS = {
    "uplink_bits_to_target": "uplink",
    "downlink_bits_to_target": "downlink",
    "backhaul_bits_to_target": "backhaul",
    "d2d_bits_to_target": "d2d",
}
# The target as a share of the accuracy that no pruning ends with.
TARGET_SHARE = 0.95


@dataclass(frozen=True, kw_only=True)
class Result:
    """The finished runs of a method or reference line, before it is compared.

    Attributes:
      runs: by seed, finished ones only.
      knobs: its tuned values; None if untuned.
      num_tuned: how many tuning runs chose them.
      untuned: its runs with the scenario's own values, by seed; empty if there are none.
      trouble: why runs are missing.
      is_waiting: True if it is not tuned yet.
    """

    entry: Entry
    runs: Mapping[int, FinishedRun]
    knobs: Knobs | None = None
    num_tuned: int = 0
    untuned: Mapping[int, FinishedRun] = field(default_factory=dict)
    trouble: str = ""
    is_waiting: bool = False

    def accuracy(self, by: By, horizon_s: float) -> BySeed:
        """Returns the accuracy by seed; empty unless every seed has one that can be compared.

        At equal time that is empty for a method that has run all its rounds so early that another would have fitted; at
        equal rounds, for one whose devices do less work in a round, or more.
        """
        if by is By.TIME and (self.ends_before(horizon_s) or not self.entry.has_costs):
            return {}
        if by is By.ROUNDS and self.entry.other_work:
            return {}
        return _whole(
            {seed: run.accuracy if by is By.ROUNDS else run.accuracy_by(horizon_s) for seed, run in self.runs.items()}
        )

    def ends_before(self, time_s: float) -> bool:
        """True if another global round would have ended by then."""
        return any(run.has_room_by(time_s) for run in self.runs.values())

    @property
    def num_diverged(self) -> int:
        return sum(run.has_diverged for run in self.runs.values())

    @property
    def curves(self) -> dict[int, tuple[float, ...]]:
        """Every accuracy of every seed: equal for methods that learn the same."""
        return {seed: tuple(test.test_accuracy for test in run.tests) for seed, run in self.runs.items()}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
      accuracy: by point of comparison; None where it cannot be compared.
      costs: to the target, by the names of `TO_TARGET` and `LINKS`; bits are of all links but where the name has one.
        None for references without costs.
      gaps: to the paper's method and to fp32.
      ranks: None without intervals, and for references.
      ends_early: True if it has run all its rounds so early that another would have fitted into the compared time.
      same_as: the plainest method with the same accuracy after every round of every seed; empty if there is none.
      remarks: sentences that belong beside its name.
    """

    result: Result
    accuracy: Mapping[By, Estimate | None]
    costs: Mapping[str, Costs] | None
    gaps: Mapping[tuple[By, str], Gap | None]
    ranks: Mapping[By, Rank | None]
    untuned: Estimate | None
    statistics: RunStatistics
    state_bytes: int
    ends_early: bool
    same_as: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def entry(self) -> Entry:
        return self.result.entry


@dataclass(frozen=True, kw_only=True)
class Standings:
    """One track, best first.

    Attributes:
      horizon_s: the compared time: that of the paper's method for its rounds, with every link.
      target: the accuracy that costs are given for; None if the reference without pruning has no finished run.
      waiting: methods that are not tuned yet, and have no row.
    """

    track: Track
    seeds: tuple[int, ...]
    horizon_s: float
    target: float | None
    rows: tuple[Row, ...]
    absent: tuple[Absent, ...]
    waiting: tuple[str, ...] = ()

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.entry.name == name), None)


def standings(
    track: Track,
    results: Sequence[Result],
    *,
    seeds: Sequence[int],
    horizon_s: float | None = None,
    absent: Sequence[Absent] = (),
) -> Standings:
    """Returns the ranked table of one track; the compared time is that of the paper's method unless it is given."""
    waiting = tuple(result.entry.name for result in results if result.is_waiting)
    by_name = {result.entry.name: result for result in results if not result.is_waiting}
    compared_s = _time_of(by_name.get(SEED)) if horizon_s is None else horizon_s
    whole = by_name[WHOLE].accuracy(By.ROUNDS, compared_s) if WHOLE in by_name else {}
    target = TARGET_SHARE * Estimate.of(list(whole.values())).mean if whole else None
    accuracy = {name: {by: result.accuracy(by, compared_s) for by in By} for name, result in by_name.items()}
    ranked = [name for name, result in by_name.items() if result.entry.is_method]
    gaps = {(by, other): _gaps(accuracy, ranked, by, other) for by in By for other in (SEED, FP32)}
    same_as = _same_as({name: by_name[name] for name in ranked})
    rank_of = {by: _ranks({name: accuracy[name][by] for name in ranked}, same_as) for by in By}
    rows = [
        _row(
            result,
            accuracy[name],
            target=target,
            horizon_s=compared_s,
            gaps={key: found.get(name) for key, found in gaps.items()},
            ranks={by: rank_of[by].get(name) for by in By},
            same=by_name.get(same_as.get(name, "")),
        )
        for name, result in by_name.items()
    ]
    return Standings(
        track=track,
        seeds=tuple(seeds),
        horizon_s=compared_s,
        target=target,
        rows=tuple(sorted(rows, key=lambda row: _place(row, track.by))),
        absent=tuple(absent),
        waiting=waiting,
    )


def _time_of(result: Result | None) -> float:
    """Returns the longest time of a method's runs; 0 if there is none."""
    ends_s = [] if result is None else [run.tests[-1].time_s or 0.0 for run in result.runs.values() if run.tests]
    return max(ends_s, default=0.0)


def _row(
    result: Result,
    accuracy: Mapping[By, BySeed],
    *,
    target: float | None,
    horizon_s: float,
    gaps: Mapping[tuple[By, str], Gap | None],
    ranks: Mapping[By, Rank | None],
    same: Result | None,
) -> Row:
    entry = result.entry
    statistics = over_seeds([run.conduct for run in result.runs.values()])
    return Row(
        result=result,
        accuracy={by: _estimate(accuracy[by]) for by in By},
        costs=_costs(result, target) if entry.has_costs else None,
        gaps=gaps,
        ranks=ranks,
        untuned=_estimate(_whole({seed: run.accuracy for seed, run in result.untuned.items()})),
        statistics=statistics,
        state_bytes=entry.state_bytes() if entry.has_costs else 0,
        ends_early=result.ends_before(horizon_s),
        same_as="" if same is None else same.entry.name,
        remarks=tuple(_remarks(result, statistics, same)),
    )


def _remarks(result: Result, statistics: RunStatistics, same: Result | None) -> list[str]:
    found = []
    if same is not None:
        found.append(f"same learning as {same.entry.name}{_differs(result, same)}")
    plan = result.entry.scenario.plan
    if statistics.max_ratio == 0.0 and plan.scheme not in WHOLE_MODELS and plan.max_pruning_ratio > 0.0:
        found.append("prunes no device here")
    if result.entry.other_work:
        found.append(f"other work per round: {result.entry.other_work.rstrip('.')}")
    shared = [seed for seed in result.runs if seed in result.untuned]
    lost = [result.untuned[seed].accuracy - result.runs[seed].accuracy for seed in shared]
    if lost and result.knobs and (mean := math.fsum(lost) / len(lost)) > 0.0:
        found.append(f"tuned is {100.0 * mean:.1f} points worse than untuned")
    return found


def _differs(result: Result, same: Result) -> str:
    """Returns the costs in which two methods of the same learning differ, as the end of a remark."""
    words = {"time_s": "time", "uploaded_bits": "bits", "energy_j": "energy"}
    differs = [
        word
        for name, word in words.items()
        if any(
            getattr(mine, name) != getattr(theirs, name)
            for seed, run in result.runs.items()
            for mine, theirs in zip(run.tests, same.runs[seed].tests, strict=False)
        )
    ]
    *first, last = differs or [""]
    return (
        f"; differs in {' and '.join([', '.join(first), last] if first else [last])}" if last else ", at the same costs"
    )


def _same_as(results: Mapping[str, Result]) -> dict[str, str]:
    """Returns for each method that learns the same as others the plainest of them: with the fewest settings.

    The two that others are compared with come first.
    """
    groups: dict[str, list[str]] = {}
    for name, result in results.items():
        if result.runs and not result.num_diverged:
            groups.setdefault(repr(sorted(result.curves.items())), []).append(name)
    found: dict[str, str] = {}
    for names in groups.values():
        plainest = min(names, key=lambda name: (name not in (SEED, FP32), len(METHODS[name].settings)))
        found |= {name: plainest for name in names if name != plainest}
    return found


def _ranks(values: Mapping[str, BySeed], same_as: Mapping[str, str]) -> dict[str, Rank | None]:
    """Returns the ranks; methods of the same learning count once and share one, where their values are the same."""
    folded = {name for name, other in same_as.items() if values[name] == values[other]}
    found = ranks({name: by_seed for name, by_seed in values.items() if name not in folded})
    return {name: found[same_as[name] if name in folded else name] for name in values}


def _place(row: Row, by: By) -> tuple[bool, bool, float, bool]:
    """Sorts methods before references, then by accuracy, then a method before those that learn the same."""
    mean, entry = row.accuracy[by], row.entry
    return not entry.is_method, not entry.has_costs, math.inf if mean is None else -mean.mean, bool(row.same_as)


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
    by_link = {
        name: Costs.of({seed: run.tests_by(link) for seed, run in runs.items()}, goal, "bits_to_target")
        for name, link in LINKS.items()
    }
    tests = {seed: run.tests_by(ALL_LINKS) for seed, run in runs.items()}
    return {measure: Costs.of(tests, goal, measure) for measure in TO_TARGET} | by_link
