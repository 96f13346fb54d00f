"""Weightings, one file each: how much a device counts in the objective of planning, c_n of Eq. (25).

To add one, write its file and list it here; `base` has the class to derive from.
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.weighting.base import Weighting

WEIGHTINGS: Registry[type[Weighting]] = Registry(
    "weighting",
    {
        "plain": "airprune.methods.weighting.plain:Plain",
        "by-data": "airprune.methods.weighting.by_data:ByData",
        "by-loss": "airprune.methods.weighting.by_loss:ByLoss",
        "by-staleness": "airprune.methods.weighting.by_staleness:ByStaleness",
    },
)
