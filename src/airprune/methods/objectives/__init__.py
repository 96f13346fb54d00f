"""Local objectives, one file each: the loss that a device minimises, and terms beside it.

To add one, write its file and list it here; `base` has the class to derive from.
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.objectives.base import Objective

OBJECTIVES: Registry[type[Objective]] = Registry(
    "objectives",
    {
        "plain": "airprune.methods.objectives.plain:Plain",
        "prox": "airprune.methods.objectives.prox:Prox",
        "scaffold": "airprune.methods.objectives.scaffold:Scaffold",
    },
)
