"""The forecast against the real run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from airprune.results.time_to_target import FIELDS, Evaluation, evaluations
from airprune.rounds.records import record_from
from airprune.runs import run
from airprune.scenario import Scenario
from airprune.studies.advice.forecast import Forecast

Watched = Callable[[Iterable[dict[str, Any]], Scenario], Iterator[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The evaluation at which a run first reached an accuracy; its best one if it never did.

    Attributes:
      edge_rounds: until then, or in all.
    """

    reached: bool
    edge_rounds: int
    at: Evaluation

    def error(self, forecast: Forecast) -> float | None:
        """Returns forecast time by real time, less 1; None if either was never reached."""
        forecast_s = forecast.time_s.median
        if not self.reached or not self.at.time_s or not math.isfinite(forecast_s):
            return None
        return forecast_s / self.at.time_s - 1.0

    def as_forecast(self, forecast: Forecast) -> bool:
        """True if the outcome lies in the forecast's interval."""
        low, _, high = forecast.rounds
        return low <= self.edge_rounds <= high if self.reached else high > self.edge_rounds

    def as_json(self, forecast: Forecast) -> dict[str, Any]:
        return {
            "method": forecast.method,
            "reached": self.reached,
            "edge_rounds": self.edge_rounds,
            "time_s": self.at.time_s,
            "uploaded_bits": self.at.uploaded_bits,
            "energy_j": self.at.energy_j,
            "test_accuracy": self.at.test_accuracy,
            "relative_error": self.error(forecast),
            "within_interval": self.as_forecast(forecast),
        }

    def sentence(self, forecast: Forecast, target: float) -> str:
        inside = "inside" if self.as_forecast(forecast) else "outside"
        if not self.reached:
            return (
                f"Checked: {forecast.method} did not reach {target:.1%} within {self.edge_rounds} edge rounds; its "
                f"best was {self.at.test_accuracy:.1%}. That is {inside} the interval."
            )
        error = self.error(forecast)
        _, rounds, _ = forecast.rounds
        expected = "never" if error is None else f"{forecast.time_s.median:.3g} s, {rounds:.0f} rounds"
        off = "" if error is None else f", an error of {error:+.0%}"
        return (
            f"Checked: {forecast.method} reached {target:.1%} after {self.at.time_s:.3g} s, {self.edge_rounds} edge "
            f"rounds; the forecast was {expected}{off}; that is {inside} the interval."
        )


def outcome_of(scenario: Scenario, target: float, *, watched: Watched = lambda records, _: iter(records)) -> Outcome:
    """Runs a scenario, evaluated after every edge round, until it has the accuracy, or to its end."""
    judged = scenario.with_("rounds.evaluate_every", "edge")
    with contextlib.closing(run(judged)) as records:
        return first_with(watched(records, judged), target)


def first_with(records: Iterable[dict[str, Any]], target: float) -> Outcome:
    """Reads records until the first accuracy of at least `target`, by the rule of `time_to_target`."""
    read, edge_rounds = [], 0
    for found in records:
        record = record_from(found, only=FIELDS)
        if record is None:
            continue
        read.append(record)
        edge_rounds += found["kind"] == "edge"
        if (found.get("test_accuracy") or 0.0) >= target:
            judged = evaluations(read)
            if judged and judged[-1].test_accuracy >= target:  # in deep trees only global rounds count
                return Outcome(reached=True, edge_rounds=edge_rounds, at=judged[-1])
    best = max(evaluations(read), key=lambda evaluation: evaluation.test_accuracy)
    return Outcome(reached=False, edge_rounds=edge_rounds, at=best)
