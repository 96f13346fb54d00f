"""Counts weights that a child did not send as unchanged: the masked mean damped by coverage.

fill − previous = (share of the children that sent the weight) · (masked mean − previous), for any masks.
"""

from __future__ import annotations

import numpy as np

from airprune.methods.aggregation.base import Aggregation, Array
from airprune.methods.aggregation.masked_sum import MaskedSum


class Fill(Aggregation):
    """The mean over all children."""

    name = "fill"
    summary = "mean over all children; a weight that a child did not send counts as unchanged"
    source = "after FedDrop (Wen et al.)"

    def finish(self, total: MaskedSum, previous: Array) -> Array:
        """(Σ c w ⊙ m + (Σ c − Σ c m) previous) / Σ c. Where all children sent a weight, exactly the masked mean."""
        if total.all_weight <= 0.0:
            return previous
        missing, before = total.all_weight - total.weight, previous.astype(np.float64)
        mean = np.where(missing > 0.0, total.total + missing * before, total.total) / total.all_weight
        return mean.astype(previous.dtype)
