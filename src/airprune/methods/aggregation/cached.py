"""An edge that counts all of its devices: who was not heard from counts by data with the model that the edge had.

next = (Σ_heard D w + Σ_others D previous) / Σ D: the data-weighted mean, damped by the share of the data heard.
"""

from __future__ import annotations

import numpy as np

from airprune.components.component import Array
from airprune.methods.aggregation.data_weighted import DataWeighted


class Cached(DataWeighted):
    """The data-weighted mean of all devices of an edge."""

    name = "cached"
    summary = "the data-weighted mean of all devices of an edge, those not heard from counting as unchanged"
    source = "after HybridFL (Wu et al.)"

    def absent(self, combined: Array, previous: Array, heard_share: float) -> Array:
        """previous + heard (combined − previous); with everybody heard, the mean as it is."""
        if heard_share >= 1.0:
            return combined
        before = previous.astype(np.float64)
        return (before + heard_share * (combined - before)).astype(previous.dtype)
