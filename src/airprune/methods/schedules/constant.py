"""The same learning rate throughout."""

from __future__ import annotations

from airprune.methods.schedules.base import Progress, Schedule


class Constant(Schedule):
    """Always 1."""

    name = "constant"
    summary = "the same learning rate throughout"
    source = "the paper"

    def factor(self, at: Progress) -> float:
        return 1.0
