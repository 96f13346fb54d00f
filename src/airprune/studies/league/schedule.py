"""The amount of work: minutes, an hour or two, or Table I to the letter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airprune.scenario import Scenario
from airprune.text import counted

BASE = "paper-converged"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The schedule of all tracks.

    Attributes:
      seeds: shared by all methods: the same placement, fading, partition and minibatches.
      is_tuned: True if every method is tuned first.
      changes: of the base scenario.
    """

    name: str
    note: str
    seeds: tuple[int, ...]
    is_tuned: bool
    changes: Mapping[str, Any] = field(default_factory=dict)

    def scenario(self) -> Scenario:
        return Scenario.preset(BASE).with_values(self.changes)

    def on(self, seeds: tuple[int, ...]) -> Schedule:
        """Returns the same schedule on other seeds."""
        return replace(self, note=re.sub(r"\d+ seeds?", counted(len(seeds), "seed"), self.note), seeds=seeds)

    def untuned(self) -> Schedule:
        """Returns the same schedule without tuning runs."""
        note = self.note.replace(", tuned", ", untuned")
        return replace(self, note=note, is_tuned=False)


def _small(global_rounds: int, test_samples: int) -> dict[str, Any]:
    return {
        "data.train_samples": 5_000,
        "data.test_samples": test_samples,
        "train.batch_size": 32,
        "rounds.global_rounds": global_rounds,
        "rounds.edge_rounds": 2,
    }


SCHEDULES = {
    schedule.name: schedule
    for schedule in (
        Schedule(
            name="quick",
            note="quick: 200 samples per device, batch 32, 4 global × 2 edge rounds, 1 seed, untuned; noisy",
            seeds=(0,),
            is_tuned=False,
            changes=_small(4, 2_000),
        ),
        Schedule(
            name="default",
            note="default: 200 samples per device, batch 32, 6 global × 2 edge rounds, 5 seeds, tuned",
            seeds=(0, 1, 2, 3, 4),
            is_tuned=True,
            changes=_small(6, 5_000),
        ),
        Schedule(
            name="full",
            note="full: Table I to the letter but for the learning rate, 10 seeds, tuned",
            seeds=tuple(range(10)),
            is_tuned=True,
        ),
    )
}
