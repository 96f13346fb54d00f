"""How a parent moves to the combined model. To add a member, write its file and list it here.

base      what a step is
replace   takes the combined model as it is: the paper's
momentum  FedAvgM
adam      FedAdam
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.aggregation.steps.base import Step

STEPS: Registry[Step] = Registry(
    "steps",
    {
        "replace": "airprune.methods.aggregation.steps.replace:STEP",
        "momentum": "airprune.methods.aggregation.steps.momentum:STEP",
        "adam": "airprune.methods.aggregation.steps.adam:STEP",
    },
)

__all__ = ["STEPS", "Step"]
