"""Rounds, time, bits and joules until an accuracy, for every method, with intervals; and the method to take."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from airprune.errors import WorkFailed
from airprune.randomness import rng_for
from airprune.rounds.experiment import Experiment
from airprune.studies.advice.candidates import Candidate
from airprune.studies.advice.curves import NUM_DRAWS, LearningCurve, fit_curve
from airprune.studies.advice.pilots import Pilots
from airprune.studies.advice.rehearsal import RoundCost, rehearse
from airprune.studies.advice.slowdown import NONE, Slowdown, lossless_rounds_at, rounds_after, slowdown

Array = np.ndarray

INTERVAL = 0.8
"""The probability that a true value lies in an interval, if pilots are representative."""
# Without a target: this much below what the lossless method is forecast to end with.
_BELOW_THE_END = 0.02
# A real run is ahead of a reference that selects a share of the devices, since it averages more of them: on the paper's
# network with a fifth by 0, 15 and 35 % of the rounds after 5, 10 and 13. By so much in logarithms, give or take this.
_LEAD, _LEAD_STD = 0.15, 0.15
# An accuracy that needs more than so many times the reference pilot's rounds is beyond what the pilot shows.
_FARTHEST = 8.0
# Interval ends this far apart, by ratio, are still called …
_SURE, _ROUGH = 1.6, 4.0
# … where the method reaches the target within the schedule at least this likely.
_LIKELY, _POSSIBLE = 0.5, 0.1
_POINTS_DRAWN = 60
# A pilot with fewer rounds shows no slope, hence nothing of the rounds to come.
_FEWEST_ROUNDS = 2
TOO_SHORT = "unknown"


class Interval(NamedTuple):
    """A median and an 80 % interval; ∞ where the target is never reached."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Array) -> Interval:
        ends = np.quantile(values, [(1 - INTERVAL) / 2, 0.5, (1 + INTERVAL) / 2], method="nearest")
        return cls(*ends.tolist())

    def times(self, factor: float) -> Interval:
        return Interval(*(factor * value for value in self))

    def as_json(self) -> dict[str, float | None]:
        return {name: value if math.isfinite(value) else None for name, value in self._asdict().items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """The forecast of one method.

    Attributes:
      slowdown: its rounds for one of the lossless method's.
      rounds, time_s, uploaded_bits, energy_j: until the target.
      final_accuracy: at the end of the schedule.
      reached: how likely the target is reached within the schedule.
      sure: "sure", "roughly" or "a guess" by the interval's width; "unlikely" or "not reached" within the
        schedule; "beyond pilot" where the lossless method needs many times the pilot's rounds; "unknown" where
        a pilot had hardly a round: then its numbers are not known, and it is not recommended.
      curve_time_s, curve: accuracies against simulated time.  [num_points], [num_points] Intervals
    """

    method: str
    words: tuple[str, ...]
    cost: RoundCost
    slowdown: Slowdown
    rounds: Interval
    final_accuracy: Interval
    reached: float
    sure: str
    curve_time_s: Array
    curve: Sequence[Interval]

    @property
    def time_s(self) -> Interval:
        return self.rounds.times(self.cost.seconds)

    @property
    def uploaded_bits(self) -> Interval:
        return self.rounds.times(self.cost.bits)

    @property
    def energy_j(self) -> Interval:
        return self.rounds.times(self.cost.joules)

    def as_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "bits_per_weight": self.cost.bits_per_weight,
            "deadline_s": self.cost.deadline_s,
            "meets_deadline": self.cost.meets_deadline,
            "edge_round_s": self.cost.seconds,
            "edge_round_bits": self.cost.bits,
            "edge_round_j": self.cost.joules,
            "slowdown": self.slowdown.ratio,
            "edge_rounds": self.rounds.as_json(),
            "time_s": self.time_s.as_json(),
            "uploaded_bits": self.uploaded_bits.as_json(),
            "energy_j": self.energy_j.as_json(),
            "final_accuracy": self.final_accuracy.as_json(),
            "reached_probability": self.reached,
            "sure": self.sure,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Advice:
    """All forecasts, the lossless method's first, and which method to take.

    Attributes:
      target: the accuracy X, given or chosen.
      schedule: edge rounds of the scenario.
      clock: how compute is timed, in words.
      no_plan: methods that have no plan for their deadline, with the smallest that they have one for.
    """

    target: float
    schedule: int
    clock: str
    forecasts: Sequence[Forecast]
    no_plan: Mapping[str, float] = field(default_factory=dict)

    @property
    def best(self) -> Forecast | None:
        """The soonest of those that probably reach the target; if none does, the most accurate at the end.

        None if the pilots were too short to know.
        """
        known = [forecast for forecast in self.forecasts if forecast.sure != TOO_SHORT]
        if not known or self.forecasts[0].sure == TOO_SHORT:
            return None
        likely = [forecast for forecast in known if forecast.reached >= _LIKELY]
        if likely:
            return min(likely, key=lambda forecast: forecast.time_s.median)
        return max(known, key=lambda forecast: forecast.final_accuracy.median)

    @property
    def sentence(self) -> str:
        best, lossless = self.best, self.forecasts[0]
        if best is None:
            return (
                "The pilots were too short for a recommendation: a method needs two rounds at least. Give a larger "
                "--budget, or --rounds in its place."
            )
        if best.reached < _LIKELY:
            return (
                f"No method is likely to reach {self.target:.1%} within {self.schedule} edge rounds; {best.method} "
                f"gets closest, to about {best.final_accuracy.median:.1%} after "
                f"{best.cost.seconds * self.schedule:.3g} s. Give more rounds.global_rounds or a lower --target."
            )
        low, median, high = best.time_s
        gain = lossless.time_s.median / median
        sooner = f", {gain:.3g} times sooner than {lossless.method}" if 1.05 < gain < math.inf else ""
        until = f"{high:.3g} s" if math.isfinite(high) else "never"
        return (
            f"Take {best.method}: {self.target:.1%} after {median:.3g} s ({low:.3g} … {until}){sooner}, with "
            f"{best.cost.bits_per_weight:.3g} bits per weight and a deadline of "
            f"{1e3 * best.cost.deadline_s:.3g} ms; {best.sure}."
        )


def advise(
    methods: Sequence[Candidate],
    experiment: Experiment,
    pilots: Pilots,
    *,
    target: float | None = None,
    no_plan: Mapping[str, float] | None = None,
) -> Advice:
    """Forecasts every method from the pilots and the planner's costs of the real run's rounds.

    Args:
      methods: the lossless one first.
      experiment: of the lossless one.
      target: X; by default the scenario's, and if it has none, a little less than the lossless method is forecast to
        end with.
      no_plan: as of `Advice`; these are not among `methods`.
    """
    if not pilots.reference.accuracy or any(not p.accuracy for found in pilots.small.values() for p in found):
        raise WorkFailed("The pilots had no time for a single round; give a larger --budget.")
    scenario = experiment.scenario
    schedule = scenario.rounds.global_rounds * max(scenario.edge_rounds_on(experiment.network))
    curve = fit_curve(np.array(pilots.reference.accuracy))
    if pilots.share < 1.0:
        lead = _LEAD + _LEAD_STD * rng_for(scenario.seed, "advice", 1).standard_normal(NUM_DRAWS)
        curve = dataclasses.replace(curve, pace=np.exp(lead))
    if target is None:
        target = scenario.rounds.target_accuracy
    if target is None:
        target = round(float(np.median(curve.accuracy_at(np.array(float(schedule))))) - _BELOW_THE_END, 3)
    forecasts = []
    fewest = pilots.fewest_rounds
    unknown = len(pilots.reference.accuracy) < _FEWEST_ROUNDS
    for place, method in enumerate(methods):
        behind = NONE if place == 0 else slowdown(pilots.curves(methods[0].name), pilots.curves(method.name))
        seen = pilots.small[method.name][0].code_error
        cost = rehearse(_experiment(method, experiment), seen)
        found = forecast(method, cost, curve, behind, target=target, schedule=schedule, seed=scenario.seed)
        if unknown or fewest[method.name] < _FEWEST_ROUNDS:
            found = dataclasses.replace(found, sure=TOO_SHORT)
        forecasts.append(found)
    return Advice(
        target=target, schedule=schedule, clock=scenario.clock.words, forecasts=forecasts, no_plan=no_plan or {}
    )


def _experiment(method: Candidate, lossless: Experiment) -> Experiment:
    return Experiment.of(method.scenario, dataset=lossless.dataset, kernel=lossless.kernel)


def forecast(
    method: Candidate,
    cost: RoundCost,
    curve: LearningCurve,
    behind: Slowdown,
    *,
    target: float,
    schedule: int,
    seed: int,
) -> Forecast:
    """Forecasts one method from the lossless learning curve and its slowdown."""
    laws = behind.drawn(rng_for(seed, "advice").standard_normal((NUM_DRAWS, 3)))
    lossless_rounds = curve.rounds_to(target)
    rounds = np.maximum(rounds_after(laws, lossless_rounds), 1.0)
    needed = Interval.of(rounds)
    reached = float(np.mean(rounds <= schedule))
    is_far = float(np.median(lossless_rounds)) > _FARTHEST * curve.rounds
    drawn = np.geomspace(1.0, schedule, _POINTS_DRAWN)
    accuracy = [Interval.of(row) for row in curve.accuracy_at(lossless_rounds_at(laws, drawn))]
    return Forecast(
        method=method.name,
        words=method.words,
        cost=cost,
        slowdown=behind,
        rounds=needed,
        final_accuracy=accuracy[-1],
        reached=reached,
        sure=_sure(needed, reached, is_far),
        curve_time_s=drawn * cost.seconds,
        curve=accuracy,
    )


def _sure(rounds: Interval, reached: float, is_far: bool) -> str:
    if reached < _POSSIBLE:
        return "not reached"
    if is_far:
        return "beyond pilot"
    if reached < _LIKELY:
        return "unlikely"
    spread = rounds.high / rounds.low
    return "sure" if spread <= _SURE else "roughly" if spread <= _ROUGH else "a guess"
