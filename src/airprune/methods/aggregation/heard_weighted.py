"""A cloud that trusts edges by the data behind their models: the samples of the devices that they have heard from."""

from __future__ import annotations

from airprune.methods.aggregation.base import Aggregation
from airprune.methods.aggregation.data_weighted import weights
from airprune.methods.aggregation.masked_mean import finish

AGGREGATION = Aggregation(
    name="heard-weighted",
    summary="as data-weighted, edges counting by the samples of the devices they heard from",
    source="after HybridFL (Wu et al.)",
    finish=finish,
    weights=weights,
    counts="heard",
)
