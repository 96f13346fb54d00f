"""Geometric median: the point with the least sum of distances to the updates, by Weiszfeld's iteration.

    z = argmin Σ ‖Δ_n − z‖:   z ← Σ w_n Δ_n / Σ w_n,   w_n = 1 / max(‖Δ_n − z‖, ν)

Distances are over the weights that a child sent, and so are the sums for each weight. It begins at the coordinate-wise
median, which no minority can move far, and ν is a millionth of the median distance.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.methods.aggregation.kept_models import Updates
from airprune.methods.aggregation.robust import Array, Robust, mean_of, trimmed_mean
from airprune.settings.section import Count

# ν over the median distance; and what stands for a distance of 0 if that is 0, too.
_SMOOTHING, _LEAST = 1e-6, 1e-300


class GeometricMedian(Robust):
    """The centre of the updates by the sum of distances."""

    name = "geometric-median"
    summary = "point with the least sum of distances to the updates (Weiszfeld)"
    source = "Pillutla, Kakade, Harchaoui 2022 (RFA); Chen, Su, Xu 2017"

    iterations: Count = Field(default=8, description="steps of Weiszfeld's iteration")

    def judge(self, updates: Updates) -> Array:
        """Returns w_n after the last step but one; the last is `combine`."""
        weights: Array | None = None
        for _ in range(self.iterations):
            total = np.zeros(len(updates))
            for _, values, sent in updates.blocks():
                centre = trimmed_mean(values, sent, 0.5) if weights is None else mean_of(values, sent, weights)
                total += np.where(sent, np.square(values - centre), 0.0).sum(axis=1)
            distance = np.sqrt(total / np.maximum(updates.num_sent, 1))
            weights = 1.0 / np.maximum(distance, max(_SMOOTHING * float(np.median(distance)), _LEAST))
        assert weights is not None
        return weights

    def combine(self, values: Array, sent: Array, judged: Array) -> Array:
        return mean_of(values, sent, judged)
