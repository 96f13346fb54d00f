"""Optimisers of a device's local steps, one file each; their state starts anew on every device and edge round.

To add one, write its file and list it here; `base` has the class to derive from.
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.optimisers.base import Optimiser

OPTIMISERS: Registry[type[Optimiser]] = Registry(
    "optimisers",
    {
        "sgd": "airprune.methods.optimisers.sgd:Sgd",
        "adam": "airprune.methods.optimisers.adam:Adam",
        "adamw": "airprune.methods.optimisers.adam:AdamW",
        "torch": "airprune.methods.optimisers.by_name:ByName",
    },
)

__all__ = ["OPTIMISERS", "Optimiser"]
