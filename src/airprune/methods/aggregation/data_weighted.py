"""The average of FedAvg: as the masked mean, with children counting by the samples they stand for."""

from __future__ import annotations

import numpy as np

from airprune.components.component import Array
from airprune.methods.aggregation.masked_mean import MaskedMean


class DataWeighted(MaskedMean):
    """The masked mean by samples."""

    name = "data-weighted"
    summary = "mean of each weight over the children that sent it, weighted by their samples"
    source = "FedAvg, HierFAVG"

    def weights(self, num_samples: Array) -> Array:
        """c_n = D_n."""
        return np.asarray(num_samples, dtype=np.float64)
