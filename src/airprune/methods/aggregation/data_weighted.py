"""The average of FedAvg: as the masked mean, with children counting by the samples they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.methods.aggregation.base import Aggregation
from airprune.methods.aggregation.masked_mean import finish

Array = np.ndarray


def weights(options: Any, num_samples: Array) -> Array:
    """c_n = D_n."""
    return np.asarray(num_samples, dtype=np.float64)


AGGREGATION = Aggregation(
    name="data-weighted",
    summary="each weight averaged over the children that sent it, who count by their samples",
    source="FedAvg, HierFAVG",
    finish=finish,
    weights=weights,
)
