"""The same few trials for everybody, judged on training images that nobody trains on, never on the test set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airprune.scenario import Scenario

SEEDS = (100, 101)
LEARNING_RATES = (0.003, 0.01, 0.03, 0.1)
# Of a step at a parent, as parts of the rate that its source recommends; with half of the learning rates.
SERVER_FACTORS = (0.3, 1.0, 3.0)
_HALF = (0.01, 0.03)
_LEARNING_RATE = "train.learning_rate"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One combination of knobs.

    Attributes:
      knobs: scenario keys and values.
    """

    knobs: Mapping[str, float]

    @property
    def words(self) -> str:
        return ", ".join(f"{_word(key)} {value:g}" for key, value in self.knobs.items())

    def scenario(self, entrant: Scenario) -> Scenario:
        """Half of the rounds, judged on held-out images; the seed is the run's."""
        halved = max(1, entrant.rounds.global_rounds // 2)
        return entrant.with_values({**self.knobs, "rounds.global_rounds": halved, "data.judge_on": "held-out"})


def _word(key: str) -> str:
    return "lr" if key == _LEARNING_RATE else "server rate"


def trials(entrant: Scenario) -> list[Trial]:
    """Four learning rates; for methods with a step of its own rate at a parent, three of these and two of those."""
    rates = dict(_server_rates(entrant))
    if not rates:
        return [Trial(knobs={_LEARNING_RATE: rate}) for rate in LEARNING_RATES]
    return [
        Trial(knobs={_LEARNING_RATE: rate, **{key: value * factor for key, value in rates.items()}})
        for rate in _HALF
        for factor in SERVER_FACTORS
    ]


def _server_rates(entrant: Scenario) -> Iterator[tuple[str, float]]:
    """Of the steps that are not a mere replacement, by scenario key."""
    aggregation: Mapping[str, Any] = entrant.to_dict()["aggregation"]
    for name in {aggregation["edge_step"]: None, aggregation["cloud_step"]: None}:
        options = aggregation.get(name)
        if isinstance(options, Mapping) and isinstance(options.get("rate"), float):
            yield f"aggregation.{name}.rate", options["rate"]


def chosen(found: Sequence[tuple[Trial, Sequence[float | None]]]) -> Trial | None:
    """The trial of the highest mean accuracy over its seeds, the first of equals; None if no trial has ended."""
    best: Trial | None = None
    highest = -math.inf
    for trial, accuracies in found:
        ended = [accuracy for accuracy in accuracies if accuracy is not None and not math.isnan(accuracy)]
        if not accuracies or len(ended) < len(accuracies):
            continue
        mean = math.fsum(ended) / len(ended)
        if mean > highest:
            best, highest = trial, mean
    return best
