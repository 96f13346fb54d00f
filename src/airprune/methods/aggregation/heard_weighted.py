"""A cloud that trusts edges by the data behind their models: the samples of the devices that they have heard from."""

from __future__ import annotations

from airprune.methods.aggregation.data_weighted import DataWeighted


class HeardWeighted(DataWeighted):
    """The masked mean by samples that were heard."""

    name = "heard-weighted"
    summary = "data-weighted mean, edges weighted by the samples of the devices that uploaded"
    source = "after HybridFL (Wu et al.)"
    counts = "heard"
