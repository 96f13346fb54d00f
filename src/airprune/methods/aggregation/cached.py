"""Averages over all devices of an edge: those that did not upload count with the previous model of the edge.

next = (Σ_heard D w + Σ_others D previous) / Σ D: the data-weighted mean, damped by the share of the data heard.
"""

from __future__ import annotations

import numpy as np

from airprune.components.component import Array
from airprune.methods.aggregation.data_weighted import DataWeighted


class Cached(DataWeighted):
    """The data-weighted mean of all devices of an edge."""

    name = "cached"
    summary = "data-weighted mean over all devices of an edge; those without an upload count as unchanged"
    source = "after HybridFL (Wu et al.)"

    def absent(self, combined: Array, previous: Array, heard_share: float) -> Array:
        """previous + heard (combined − previous); if all devices uploaded, the mean as it is."""
        if heard_share >= 1.0:
            return combined
        before = previous.astype(np.float64)
        return (before + heard_share * (combined - before)).astype(previous.dtype)
