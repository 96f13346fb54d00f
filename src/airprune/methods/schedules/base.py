"""The base class of schedules: the factor of the learning rate at some point of a run, or of a device's round."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from airprune.components.component import Component


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A point of a run in the unit of `train.schedule_unit`.

    Attributes:
      done: units since the start; with fractions between two edge rounds, where it follows local steps.
      total: units of the whole run, or of a device's round.
      step_every, step_factor: of `[train]`, for schedules with steps.
    """

    done: float
    total: float
    step_every: int = 1
    step_factor: float = 0.5


class Schedule(Component):
    """One schedule; it has no state, since the point of the run says all."""

    @abstractmethod
    def factor(self, at: Progress) -> float:
        """Returns what train.learning_rate is multiplied by."""
