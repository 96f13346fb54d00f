"""Coordinate-wise median: of each weight, the middle one of the values that were sent, or the mean of the two."""

from __future__ import annotations

from airprune.methods.aggregation.robust import Array, Robust, trimmed_mean


class Median(Robust):
    """The median of each weight."""

    name = "median"
    summary = "median of each weight over the children that sent it"
    source = "Yin, Chen, Kannan, Bartlett 2018, coordinate-wise median"

    def combine(self, values: Array, sent: Array, judged: Array) -> Array:
        return trimmed_mean(values, sent, 0.5)
