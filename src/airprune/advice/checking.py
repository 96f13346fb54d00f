"""The forecast against the real run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from airprune.advice.forecast import Forecast
from airprune.runs import run
from airprune.scenario import Scenario

Watched = Callable[[Iterable[dict[str, Any]], Scenario], Iterator[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """When a run first had an accuracy; the figures are of its end if it never had.

    Attributes:
      edge_rounds: since the start.
      time_s: simulated, when the slowest edge had finished that round.
    """

    reached: bool
    edge_rounds: int
    time_s: float
    uploaded_bits: float
    energy_j: float
    test_accuracy: float

    def error(self, forecast: Forecast) -> float | None:
        """Forecast time by real time, less 1; None if either was never."""
        forecast_s = forecast.time_s.median
        return forecast_s / self.time_s - 1.0 if self.reached and math.isfinite(forecast_s) else None

    def as_forecast(self, forecast: Forecast) -> bool:
        """Whether the interval has it."""
        low, _, high = forecast.rounds
        return low <= self.edge_rounds <= high if self.reached else high > self.edge_rounds

    def as_json(self, forecast: Forecast) -> dict[str, Any]:
        return {
            "method": forecast.method,
            "reached": self.reached,
            "edge_rounds": self.edge_rounds,
            "time_s": self.time_s,
            "uploaded_bits": self.uploaded_bits,
            "energy_j": self.energy_j,
            "test_accuracy": self.test_accuracy,
            "relative_error": self.error(forecast),
            "within_interval": self.as_forecast(forecast),
        }

    def sentence(self, forecast: Forecast, target: float) -> str:
        error = self.error(forecast)
        inside = "inside" if self.as_forecast(forecast) else "outside"
        _, rounds, _ = forecast.rounds
        if not self.reached:
            return (
                f"Checked: {forecast.method} did not reach {target:.1%} within {self.edge_rounds} edge rounds; its "
                f"best was {self.test_accuracy:.1%}. That is {inside} the interval."
            )
        expected = "never" if error is None else f"{forecast.time_s.median:.3g} s, {rounds:.0f} rounds"
        told = "" if error is None else f", an error of {error:+.0%}"
        return (
            f"Checked: {forecast.method} reached {target:.1%} after {self.time_s:.3g} s, {self.edge_rounds} edge "
            f"rounds; forecast were {expected}{told}; {inside} the interval."
        )


def outcome_of(scenario: Scenario, target: float, *, watched: Watched = lambda records, _: iter(records)) -> Outcome:
    """Runs a scenario, judged after every edge round, until it has the accuracy, or to its end."""
    judged = scenario.with_("rounds.evaluate_every", "edge")
    with contextlib.closing(run(judged)) as records:
        return first_with(watched(records, judged), target)


def first_with(records: Iterable[dict[str, Any]], target: float) -> Outcome:
    """When records first tell an accuracy of at least `target`."""
    rounds, best = 0, 0.0
    bits = joules = before_s = now_s = 0.0
    waited_s: dict[int, float] = {}
    for record in records:
        if record["kind"] == "global":
            before_s = now_s = record["time_s"]
            waited_s = {}
        elif record["kind"] == "edge":
            rounds += 1
            bits += record["uploaded_bits"]
            joules += record["energy_j"]
            for edge, latency_s in zip(record["edge_id"], record["edge_latency_s"], strict=True):
                waited_s[edge] = waited_s.get(edge, 0.0) + (latency_s or 0.0)
            now_s = before_s + max(waited_s.values())
        accuracy = record.get("test_accuracy")
        best = max(best, accuracy or 0.0)
        if accuracy is not None and accuracy >= target:
            break
    return Outcome(
        reached=best >= target,
        edge_rounds=rounds,
        time_s=now_s,
        uploaded_bits=bits,
        energy_j=joules,
        test_accuracy=best,
    )
