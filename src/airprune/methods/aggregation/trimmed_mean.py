"""Coordinate-wise trimmed mean: of the values of each weight, the largest and the smallest are dropped.

next = previous + mean of Δ_(k+1) … Δ_(c−k),   k = ⌈β c⌉ of the c values that were sent, in ascending order
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from airprune.methods.aggregation.robust import Array, Robust, trimmed_mean


class TrimmedMean(Robust):
    """The mean of each weight without its extremes."""

    name = "trimmed-mean"
    summary = "mean of each weight without the largest and the smallest values"
    source = "Yin, Chen, Kannan, Bartlett 2018, coordinate-wise trimmed mean"
    fully_open: ClassVar = {"trim": 0.0, "clip": None}

    trim: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.2, description="beta: share of the values of a weight that is dropped at either end, rounded up"
    )

    @property
    def is_plain(self) -> bool:
        return self.trim == 0.0 and self.clip is None

    def combine(self, values: Array, sent: Array, judged: Array) -> Array:
        return trimmed_mean(values, sent, self.trim)
