"""Learning rates: of a round, by the driver, and of a device's local steps, by the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.methods.schedules.base import Progress, Schedule
from airprune.scenario import Scenario
from airprune.scenario.sections import TrainSection

# Units of `train.schedule_unit` that change within a device's round.
WITHIN_ROUNDS = ("step", "local-step")


def round_rate(
    train: TrainSection, *, global_round: int, global_rounds: int, round_index: int = 0, num_rounds: int = 1
) -> float:
    """Returns η of an edge round; where the schedule follows local steps, what it multiplies.

    Args:
      global_round, round_index: global rounds, and edge rounds, since the start of the run.
      global_rounds, num_rounds: those of the whole run.
    """
    if train.schedule_unit in WITHIN_ROUNDS:
        return train.learning_rate
    by_edge = train.schedule_unit == "edge"
    done, total = (round_index, num_rounds) if by_edge else (global_round, global_rounds)
    schedule: Schedule = train.chosen("schedule")
    at = Progress(done=done, total=total, step_every=train.step_every, step_factor=train.step_factor)
    return train.learning_rate * schedule.factor(at)


@dataclass(frozen=True, kw_only=True)
class StepRates:
    """A schedule that follows local steps.

    Attributes:
      num_rounds: edge rounds of the whole run; None: it starts anew in every round of a device.
    """

    schedule: Schedule
    num_rounds: int | None
    step_every: int = 1
    step_factor: float = 0.5

    @classmethod
    def of(cls, scenario: Scenario) -> StepRates | None:
        """Returns the schedule of a scenario, if it follows local steps."""
        train = scenario.train
        if train.schedule_unit not in WITHIN_ROUNDS or train.schedule == "constant":
            return None
        return cls(
            schedule=train.chosen("schedule"),
            num_rounds=_num_rounds(scenario) if train.schedule_unit == "step" else None,
            step_every=train.step_every,
            step_factor=train.step_factor,
        )

    def of_steps(self, learning_rate: float, round_index: int, num_steps: int) -> list[float]:
        """Returns η of each local step of a device."""
        if self.num_rounds is None:
            done, total = [float(step) for step in range(num_steps)], float(num_steps)
        else:
            done, total = [round_index + step / num_steps for step in range(num_steps)], float(self.num_rounds)
        every, factor = self.step_every, self.step_factor
        points = (Progress(done=at, total=total, step_every=every, step_factor=factor) for at in done)
        return [learning_rate * self.schedule.factor(at) for at in points]


def _num_rounds(scenario: Scenario) -> int:
    """Returns the edge rounds of the whole run, of the edge that has most; the same on devices and in the driver."""
    rounds = scenario.rounds.edge_rounds
    counts = rounds if isinstance(rounds, tuple) else (rounds,) * scenario.network.num_edges
    tree = scenario.topology.chosen("name").build(np.array(counts))
    return scenario.rounds.global_rounds * int(np.prod([tree.max_rounds(level) for level in range(tree.depth)]))
