"""Cost of an accuracy: time, bits, joules and rounds until the first evaluation that is at least as good.

The rule: the first recorded evaluation, in the order of the records, whose test accuracy is ≥ the target. Nothing is
interpolated between evaluations, and that a later one falls below the target again changes nothing. A run that never
gets there has "not reached" it: its cost is ∞, more than that of any run that has. Over seeds

- a mean and its interval exist only if every seed reached the target: a mean over those that did would favour a
  variant that fails on the hard seeds;
- otherwise there is the median over all seeds, which is ∞ itself once half of them have not reached it.

Two variants are compared seed by seed, by the ratio of their costs: see `Ratio`. The ratio over a swept quantity, and
where it passes 1, is in `crossover`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.results.measures import MEASURES, TO_TARGET
from airprune.results.statistics import Estimate
from airprune.rounds.records import EdgeRecord, GlobalRecord, NodeRecord, Record
from airprune.runs.layout import RunFolder
from airprune.text import MISSING, number

NOT_REACHED = "not reached"
TIME = "time_to_target_s"
# What is read of a record, besides which round it is.
FIELDS = frozenset({"edge_id", "edge_latency_s", "uploaded_bits", "energy_j", "test_accuracy", "time_s"})


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One test of the model, and what had been spent by then since the start; None where that was not recorded.

    Attributes:
      edge_round: None after a global round.
      test_accuracy: value of the metric: of another one, if `evaluations` was called for that.
    """

    global_round: int
    edge_round: int | None
    test_accuracy: float
    time_s: float | None
    uploaded_bits: float | None
    energy_j: float | None


# A variant's runs: the evaluations of each seed.
Runs = Mapping[int, Sequence[Evaluation]]


def evaluations(records: Iterable[Record], metric: str = "test_accuracy") -> list[Evaluation]:
    """Returns every evaluation of a run by a recorded metric, in order.

    One after an edge round counts when the slowest edge has finished that round: the time of the global rounds before
    it plus max_k Σ_e t_k,e; links above the edges come with the global round. In a tree with nodes between edges and
    cloud, who waits for whom is not in an edge record; there only global rounds count, which is later, never earlier.
    """
    records = list(records)
    is_deep = any(isinstance(record, NodeRecord) for record in records)
    found: list[Evaluation] = []
    time_s: float | None = 0.0
    uploaded_bits: float | None = 0.0
    energy_j: float | None = 0.0
    waited_s: dict[int, float] = {}
    for record in records:
        if isinstance(record, EdgeRecord):
            uploaded_bits = _sum(uploaded_bits, record.uploaded_bits)
            energy_j = _sum(energy_j, record.energy_j)
            for edge, latency_s in zip(record.edge_id, record.edge_latency_s, strict=False):
                waited_s[edge] = waited_s.get(edge, 0.0) + (latency_s or 0.0)  # none: it ran nothing
            if (value := _value(record, metric)) is not None and not is_deep:
                now_s = _sum(time_s, max(waited_s.values(), default=0.0))
                found.append(_evaluation(record, value, record.edge_round, now_s, uploaded_bits, energy_j))
        elif isinstance(record, GlobalRecord):
            time_s, uploaded_bits, energy_j = record.time_s, record.uploaded_bits, record.energy_j
            waited_s = {}
            if (value := _value(record, metric)) is not None:
                found.append(_evaluation(record, value, None, time_s, uploaded_bits, energy_j))
    return found


def evaluations_in(folder: RunFolder, metric: str = "test_accuracy") -> list[Evaluation]:
    """Reads every evaluation of the run in a folder, in order; of long records only the fields that it needs."""
    return evaluations(folder.reader.read(only=FIELDS | {metric}).records, metric)


def _value(record: EdgeRecord | GlobalRecord, metric: str) -> float | None:
    """Returns the value of a recorded metric; None if it was not evaluated, or is no number."""
    value = getattr(record, metric, None) if hasattr(record, metric) else record.extra.get(metric)
    return value if isinstance(value, (int, float)) else None


def _sum(before: float | None, more: float | None) -> float | None:
    """Returns the sum; None if a term is None or NaN."""
    return None if before is None or more is None or math.isnan(before + more) else before + more


def _evaluation(
    record: EdgeRecord | GlobalRecord,
    value: float,
    edge_round: int | None,
    time_s: float | None,
    uploaded_bits: float | None,
    energy_j: float | None,
) -> Evaluation:
    return Evaluation(
        global_round=record.global_round,
        edge_round=edge_round,
        test_accuracy=value,
        time_s=time_s,
        uploaded_bits=uploaded_bits,
        energy_j=energy_j,
    )


def first_reaching(found: Iterable[Evaluation], target: float, *, smaller_is_better: bool = False) -> Evaluation | None:
    """Returns the first evaluation with accuracy ≥ target; None: not reached. NaN reaches nothing.

    Args:
      smaller_is_better: for metrics such as losses, which must be ≤ target.
    """
    sign = -1.0 if smaller_is_better else 1.0
    return next((one for one in found if sign * one.test_accuracy >= sign * target), None)


def cost(found: Sequence[Evaluation], target: float, measure: str, *, smaller_is_better: bool = False) -> float:
    """Returns one of `TO_TARGET`; ∞ if not reached, NaN if that is not known: never evaluated or not recorded."""
    if not found:
        return math.nan
    reached = first_reaching(found, target, smaller_is_better=smaller_is_better)
    if reached is None:
        return math.inf
    value = getattr(reached, TO_TARGET[measure])
    return math.nan if value is None else float(value)


@dataclass(frozen=True)
class Costs:
    """One measure of one variant: a cost per seed. A seed whose cost is not known is not among them.

    Attributes:
      by_seed: ∞ where the target was not reached.
    """

    by_seed: Mapping[int, float]

    @classmethod
    def of(cls, runs: Runs, target: float, measure: str) -> Costs:
        found = {seed: cost(run, target, measure) for seed, run in runs.items()}
        return cls({seed: value for seed, value in found.items() if not math.isnan(value)})

    @property
    def num_seeds(self) -> int:
        return len(self.by_seed)

    @property
    def num_reached(self) -> int:
        return sum(map(math.isfinite, self.by_seed.values()))

    @property
    def estimate(self) -> Estimate | None:
        """Mean and interval; None unless every seed reached the target."""
        values = list(self.by_seed.values())
        return Estimate.of(values) if values and all(map(math.isfinite, values)) else None

    @property
    def median(self) -> float | None:
        """Over all seeds; None if half of them or more have not reached the target."""
        return _median(list(self.by_seed.values()))

    def text(self, measure: str) -> str:
        """Returns the cost as it stands under the measure's heading, beside `reached_text`."""
        about = MEASURES[measure]
        if not self.by_seed:
            return MISSING
        if self.estimate is not None:
            return self.estimate.text(about.form, scale=about.scale)
        return NOT_REACHED if self.median is None else f"median {about.text(self.median)}"

    @property
    def reached_text(self) -> str:
        """The number of seeds as text: 4 of 5; a dash if no run was ever tested."""
        return f"{self.num_reached} of {self.num_seeds}" if self.by_seed else MISSING

    def as_json(self) -> dict[str, float | None]:
        estimate = self.estimate
        has_interval = estimate is not None and not math.isnan(estimate.half_width)
        return {
            "mean": estimate.mean if estimate else None,
            "half_width_95": estimate.half_width if estimate and has_interval else None,
            "median": self.median,
        }


def _median(values: Sequence[float]) -> float | None:
    if not values:
        return None
    middle = float(np.median(values))
    return middle if math.isfinite(middle) else None


def tidy_row(series: str, seed: int, found: Sequence[Evaluation], target: float) -> dict[str, Any]:
    """Returns a run's line of a tidy table: whether it reached the target (None: never tested), and its costs."""
    costs = {name: cost(found, target, name) for name in TO_TARGET}
    return {
        "series": series,
        "seed": seed,
        "target_accuracy": target,
        "reached": first_reaching(found, target) is not None if found else None,
        **{name: value if math.isfinite(value) else None for name, value in costs.items()},
    }


def costs_in(rows: Iterable[Mapping[str, Any]], measure: str) -> Costs:
    """Returns the costs in lines of a tidy table, also as read from a file."""
    found: dict[int, float] = {}
    for row in rows:
        value = math.inf if str(row["reached"]) == "False" else row[measure]
        if isinstance(value, int | float) and not math.isnan(value):
            found[row["seed"]] = float(value)
    return Costs(found)


@dataclass(frozen=True)
class Ratio:
    """Cost of one variant over that of another, seed by seed, on the seeds that both have.

    Attributes:
      by_seed: ∞ where only the other reached the target, 0 where only this one did, NaN where neither did.
    """

    by_seed: Mapping[int, float]

    @classmethod
    def of(cls, this: Costs, other: Costs) -> Ratio:
        shared = [seed for seed in this.by_seed if seed in other.by_seed]
        return cls({seed: _ratio(this.by_seed[seed], other.by_seed[seed]) for seed in shared})

    @property
    def _decided(self) -> list[float]:
        return [value for value in self.by_seed.values() if not math.isnan(value)]

    @property
    def num_decided(self) -> int:
        """Seeds on which at least one reached the target."""
        return len(self._decided)

    @property
    def num_pairs(self) -> int:
        """Seeds on which both reached the target."""
        return sum(0.0 < value < math.inf for value in self.by_seed.values())

    @property
    def is_whole(self) -> bool:
        return bool(self.by_seed) and self.num_pairs == len(self.by_seed)

    @property
    def middle(self) -> float:
        """The geometric mean if every seed is a pair; else the median over the seeds on which at least one reached it.

        That may be ∞ (this one fails) or 0 (the other does); NaN if there is no such seed.
        """
        if self.is_whole:
            return math.exp(self._logs.mean)
        ordered = sorted(self._decided)
        if not ordered:
            return math.nan
        low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
        if low == 0.0 and high == math.inf:
            return math.nan
        return math.sqrt(low * high)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %, Student's t of the logarithms; None for a single seed, or unless every seed is a pair."""
        if not self.is_whole or math.isnan(self._logs.half_width):
            return None
        logs = self._logs
        return math.exp(logs.mean - logs.half_width), math.exp(logs.mean + logs.half_width)

    @property
    def _logs(self) -> Estimate:
        return Estimate.of([math.log(value) for value in self.by_seed.values()])

    @property
    def text(self) -> str:
        """The ratio as text: 0.58 (0.55 … 0.61); where a seed is no pair, the median and the number of pairs."""
        if not self._decided:
            return NOT_REACHED if self.by_seed else MISSING
        if self.interval is not None:
            low, high = self.interval
            return f"{number(self.middle, '.3g')} ({number(low, '.3g')} … {number(high, '.3g')})"
        if self.is_whole:
            return number(self.middle, ".3g")
        if 0.0 < self.middle < math.inf:
            return f"median {number(self.middle, '.3g')}, {self.num_pairs} of {len(self.by_seed)} pairs"
        return {math.inf: NOT_REACHED, 0.0: "other not reached"}.get(self.middle, "undecided")

    def as_json(self) -> dict[str, float | int | None]:
        low, high = self.interval or (None, None)
        middle = self.middle
        return {
            "ratio": middle if 0.0 < middle < math.inf else None,
            "low_95": low,
            "high_95": high,
            "pairs": self.num_pairs,
            "only_this": sum(value == 0.0 for value in self.by_seed.values()),
            "only_other": sum(value == math.inf for value in self.by_seed.values()),
            "neither": len(self.by_seed) - len(self._decided),
        }


def _ratio(this: float, other: float) -> float:
    if math.isinf(this):
        return math.nan if math.isinf(other) else math.inf
    if math.isinf(other):
        return 0.0
    return this / other if this > 0.0 and other > 0.0 else math.nan


@dataclass(frozen=True, kw_only=True)
class ToTarget:
    """The costs of one variant until it reached the target.

    Attributes:
      costs: by the names of `TO_TARGET`.
      time_ratio: of its time to that of the reference; None for the reference itself.
    """

    target: float
    costs: Mapping[str, Costs]
    reference: str | None = None
    time_ratio: Ratio | None = None

    @property
    def reached_text(self) -> str:
        return self.costs[TIME].reached_text

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "target_accuracy": self.target,
            "reached": self.costs[TIME].num_reached,
            "seeds": self.costs[TIME].num_seeds,
            **{name: costs.as_json() for name, costs in self.costs.items()},
        }
        if self.time_ratio is not None:
            found["time_ratio"] = {"to": self.reference, **self.time_ratio.as_json()}
        return found


def to_target(runs: Mapping[str, Runs], target: float, *, reference: str | None = None) -> dict[str, ToTarget]:
    """Returns the costs of every variant from its runs by seed; times also as ratios to those of the reference."""
    costs = {
        name: {measure: Costs.of(by_seed, target, measure) for measure in TO_TARGET} for name, by_seed in runs.items()
    }
    return {
        name: ToTarget(
            target=target,
            costs=mine,
            reference=reference,
            time_ratio=None if reference in (None, name) else Ratio.of(mine[TIME], costs[reference][TIME]),
        )
        for name, mine in costs.items()
    }


def default_target(runs: Iterable[Runs]) -> float | None:
    """Returns a target where none is given: the highest whole percent that every run has reached.

    At least half of what the best run reached, so that a run which learns nothing does not make the comparison void.
    None if nothing was tested, or it would be 0.
    """
    best = [
        max(accuracies)
        for by_seed in runs
        for found in by_seed.values()
        if (accuracies := [test.test_accuracy for test in found if not math.isnan(test.test_accuracy)])
    ]
    if not best:
        return None
    percent = math.floor(100.0 * max(min(best), max(best) / 2.0) + 1e-9)
    return percent / 100.0 if percent > 0 else None


def reference_among(scheme_by_name: Mapping[str, str]) -> str | None:
    """Returns the reference of the others: the first that does not prune, else the first; None for a single one."""
    names = list(scheme_by_name)
    whole = [name for name in names if scheme_by_name[name] == "no-pruning"]
    return (whole or names)[0] if len(names) > 1 else None


def target_text(target: float) -> str:
    """Returns the target as text: 70 %."""
    return number(target, ".4g", " %", scale=100.0)
