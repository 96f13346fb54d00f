"""Aggregations of the models of a node's children, one file each. To add one, write its file and list it here.

base        the class to derive from
masked_sum  Σ c w ⊙ m and Σ c m, the streaming sum that all share
joint_sum   the sum of devices that an edge cannot tell apart, who must send the same weights; cohort: which they are
kept_models the sum that keeps every model, for `robust` aggregations, which compare them with each other
steps       server optimisers: from the old model of a node and the aggregate to its next model
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.aggregation.base import Aggregation

AGGREGATIONS: Registry[type[Aggregation]] = Registry(
    "aggregation",
    {
        "masked-mean": "airprune.methods.aggregation.masked_mean:MaskedMean",
        "data-weighted": "airprune.methods.aggregation.data_weighted:DataWeighted",
        "heard-weighted": "airprune.methods.aggregation.heard_weighted:HeardWeighted",
        "cached": "airprune.methods.aggregation.cached:Cached",
        "fill": "airprune.methods.aggregation.fill:Fill",
        "zero-padded": "airprune.methods.aggregation.zero_padded:ZeroPadded",
        "vote": "airprune.methods.aggregation.vote:Vote",
        "group-vote": "airprune.methods.aggregation.group_vote:GroupVote",
        "fednova": "airprune.methods.aggregation.fednova:FedNova",
        "predicted": "airprune.methods.aggregation.predicted:Predicted",
        "norm-clip": "airprune.methods.aggregation.norm_clip:NormClip",
        "trimmed-mean": "airprune.methods.aggregation.trimmed_mean:TrimmedMean",
        "median": "airprune.methods.aggregation.median:Median",
        "krum": "airprune.methods.aggregation.krum:Krum",
        "geometric-median": "airprune.methods.aggregation.geometric_median:GeometricMedian",
        "secure-sum": "airprune.methods.aggregation.secure_sum:SecureSum",
        "over-the-air": "airprune.methods.aggregation.over_the_air:OverTheAir",
    },
)
