"""Weights edges at the cloud by the samples of the devices that uploaded to them."""

from __future__ import annotations

from airprune.methods.aggregation.data_weighted import DataWeighted


class HeardWeighted(DataWeighted):
    """The masked mean by the samples of uploads."""

    name = "heard-weighted"
    summary = "data-weighted mean, edges weighted by the samples of the devices that uploaded"
    source = "after HybridFL (Wu et al.)"
    counts = "heard"
