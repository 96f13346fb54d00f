"""How a parent combines its children's models. To add a member, write its file and list it here.

base            what an aggregation is
masked_sum      Σ c w ⊙ m and Σ c m, the streaming sum that the members share
masked_mean     each weight over the children that kept it, Eqs. (12) and (13)
data_weighted   the same, children counting by their samples
heard_weighted  … edges by the samples of the devices they heard from
cached          devices that an edge did not hear from count as unchanged
fill            what a child did not send counts as unchanged
vote            one step with the majority of the children
group_vote      … in groups of devices first, then over the groups
predicted       what a child did not send counts as predicted from the others, as far as children agree
steps           how a parent moves to the combined model
"""

from __future__ import annotations

from airprune.aggregation.base import Aggregation
from airprune.registry import Registry

AGGREGATIONS: Registry[Aggregation] = Registry(
    "aggregation",
    {
        "masked-mean": "airprune.aggregation.masked_mean:AGGREGATION",
        "data-weighted": "airprune.aggregation.data_weighted:AGGREGATION",
        "heard-weighted": "airprune.aggregation.heard_weighted:AGGREGATION",
        "cached": "airprune.aggregation.cached:AGGREGATION",
        "fill": "airprune.aggregation.fill:AGGREGATION",
        "vote": "airprune.aggregation.vote:AGGREGATION",
        "group-vote": "airprune.aggregation.group_vote:AGGREGATION",
        "predicted": "airprune.aggregation.predicted:AGGREGATION",
    },
)

__all__ = ["AGGREGATIONS", "Aggregation"]
