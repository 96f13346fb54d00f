"""Server optimisers of edges and cloud, one file each. To add one, write its file and list it here."""

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
