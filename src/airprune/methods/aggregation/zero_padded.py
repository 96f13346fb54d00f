"""Averages sub-models of different sizes as if each were padded with zeros to the size of the whole.

zero-padded = (share of the children, by samples, that sent the weight) · (their weighted mean). A weight that no child
sent keeps its value: the source's model is as large as the largest of its devices', so that it has no such weight.
"""

from __future__ import annotations

import numpy as np

from airprune.methods.aggregation.base import Array
from airprune.methods.aggregation.data_weighted import DataWeighted
from airprune.methods.aggregation.masked_sum import MaskedSum


class ZeroPadded(DataWeighted):
    """The mean over all children by samples, with zeros for what one does not hold."""

    name = "zero-padded"
    summary = "mean over all children by samples; a weight that a child did not send counts as zero"
    source = "after Cho et al. (HetLoRA)"

    def finish(self, total: MaskedSum, previous: Array) -> Array:
        """Σ c w ⊙ m / Σ c where a child sent the weight. Where all did, exactly the mean by samples."""
        mean = super().finish(total, previous)
        if total.dense_count == total.all_count or total.all_weight <= 0.0:
            return mean
        share = np.where(total.sent_by > 0, total.weight / total.all_weight, 1.0)
        if total.frozen_weight is not None:  # what a child leaves as it received it is not zero there
            share = np.minimum(share + total.frozen_weight / total.all_weight, 1.0)
        return np.where(share < 1.0, mean * share, mean).astype(previous.dtype)
