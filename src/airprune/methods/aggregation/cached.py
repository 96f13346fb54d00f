"""An edge that counts all of its devices: who was not heard from counts by data with the model that the edge had.

next = (Σ_heard D w + Σ_others D previous) / Σ D: the data-weighted mean, damped by the share of the data heard.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.methods.aggregation.base import Aggregation
from airprune.methods.aggregation.data_weighted import weights
from airprune.methods.aggregation.masked_mean import finish

Array = np.ndarray


def absent(options: Any, combined: Array, previous: Array, heard: float) -> Array:
    """previous + heard (combined − previous); with everybody heard, the mean as it is."""
    if heard >= 1.0:
        return combined
    before = previous.astype(np.float64)
    return (before + heard * (combined - before)).astype(previous.dtype)


AGGREGATION = Aggregation(
    name="cached",
    summary="the data-weighted mean of all devices of an edge, those not heard from counting as unchanged",
    source="after HybridFL (Wu et al.)",
    finish=finish,
    weights=weights,
    absent=absent,
)
