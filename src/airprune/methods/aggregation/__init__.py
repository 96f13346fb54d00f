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
        "vote": "airprune.methods.aggregation.vote:Vote",
        "group-vote": "airprune.methods.aggregation.group_vote:GroupVote",
        "predicted": "airprune.methods.aggregation.predicted:Predicted",
    },
)

__all__ = ["AGGREGATIONS", "Aggregation"]
