"""How a parent moves to the combined model. To add a member, write its file and list it here.

base      what a step is
replace   takes the combined model as it is: the paper's
momentum  FedAvgM
adam      FedAdam
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.aggregation.steps.base import Step

STEPS: Registry[type[Step]] = Registry(
    "steps",
    {
        "replace": "airprune.methods.aggregation.steps.replace:Replace",
        "momentum": "airprune.methods.aggregation.steps.momentum:Momentum",
        "adam": "airprune.methods.aggregation.steps.adam:Adam",
    },
)

__all__ = ["STEPS", "Step"]
