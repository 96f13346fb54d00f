"""The same few tuning runs for every method, evaluated on training images that no device trains on, never on the test
set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airprune.scenario import Scenario

SEEDS = (100, 101)
LEARNING_RATES = (0.003, 0.01, 0.03, 0.1)
# Server learning rates, as parts of the rate that the source recommends; with half of the learning rates.
SERVER_FACTORS = (0.3, 1.0, 3.0)
_HALF = (0.01, 0.03)
_LEARNING_RATE = "train.learning_rate"

Knobs = Mapping[str, float]
"""One combination of tuned values by scenario key."""


def knobs_text(knobs: Knobs) -> str:
    """Returns the values as text: lr 0.01, server rate 0.3."""
    names = {key: "lr" if key == _LEARNING_RATE else "server rate" for key in knobs}
    return ", ".join(f"{names[key]} {value:g}" for key, value in knobs.items())


def tuning_scenario(scenario: Scenario, knobs: Knobs) -> Scenario:
    """Returns the method's scenario with these values and half of the rounds, evaluated on held-out images."""
    halved = max(1, scenario.rounds.global_rounds // 2)
    return scenario.with_values({**knobs, "rounds.global_rounds": halved, "data.judge_on": "held-out"})


def grid(scenario: Scenario) -> list[Knobs]:
    """Returns four learning rates; for methods with a server optimiser two of them times three server rates."""
    rates = dict(_server_rates(scenario))
    if not rates:
        return [{_LEARNING_RATE: rate} for rate in LEARNING_RATES]
    return [
        {_LEARNING_RATE: rate, **{key: value * factor for key, value in rates.items()}}
        for rate in _HALF
        for factor in SERVER_FACTORS
    ]


def _server_rates(scenario: Scenario) -> Iterator[tuple[str, float]]:
    """Yields the rate of each server optimiser that has one, by scenario key."""
    aggregation: Mapping[str, Any] = scenario.to_dict()["aggregation"]
    for name in {aggregation["edge_step"]: None, aggregation["cloud_step"]: None}:
        options = aggregation.get(name)
        if isinstance(options, Mapping) and isinstance(options.get("rate"), float):
            yield f"aggregation.{name}.rate", options["rate"]


def best(found: Sequence[tuple[Knobs, Sequence[float | None]]]) -> Knobs | None:
    """Returns the values of the highest mean accuracy over all seeds, the first of equals; None if none is complete."""
    chosen: Knobs | None = None
    highest = -math.inf
    for knobs, accuracies in found:
        ended = [accuracy for accuracy in accuracies if accuracy is not None and not math.isnan(accuracy)]
        if not accuracies or len(ended) < len(accuracies):
            continue
        mean = math.fsum(ended) / len(ended)
        if mean > highest:
            chosen, highest = knobs, mean
    return chosen
