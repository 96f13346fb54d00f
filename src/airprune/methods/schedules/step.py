"""A learning rate that changes by a factor every so many units."""

from __future__ import annotations

from airprune.methods.schedules.base import Progress, Schedule


class StepDecay(Schedule):
    """step_factor ^ ⌊t / step_every⌋."""

    name = "step"
    summary = "times train.step_factor every train.step_every units"

    def factor(self, at: Progress) -> float:
        return float(at.step_factor ** (at.done // at.step_every))
