"""A learning rate that falls to zero along half a cosine."""

from __future__ import annotations

import math

from airprune.methods.schedules.base import Progress, Schedule


class Cosine(Schedule):
    """(1 + cos(π t / T)) / 2."""

    name = "cosine"
    summary = "falls to zero along half a cosine"
    source = "Loshchilov and Hutter 2017, without restarts"

    def factor(self, at: Progress) -> float:
        return 0.5 * (1.0 + math.cos(math.pi * at.done / at.total))
