"""Norm clipping: long updates are shortened to a multiple of the round's median length, then averaged.

next = previous + mean of min(1, C median ‖Δ_m‖ / ‖Δ_n‖) Δ_n
"""

from __future__ import annotations

from typing import ClassVar

from airprune.methods.aggregation.kept_models import Updates
from airprune.methods.aggregation.robust import Array, Robust, mean_of, shortening


class NormClip(Robust):
    """The mean of clipped updates."""

    name = "norm-clip"
    summary = "mean of the updates, long ones shortened to a multiple of the round's median length"
    source = "after Sun et al. 2019, with a threshold relative to the round's median"
    fully_open: ClassVar = {"clip": None}

    @property
    def is_plain(self) -> bool:
        return self.clip is None

    def judge(self, updates: Updates) -> Array:
        """Returns the factor that shortens each update."""
        return shortening(updates.lengths, self.clip)

    def combine(self, values: Array, sent: Array, judged: Array) -> Array:
        return mean_of(judged[:, None] * values, sent)
