"""What a device minimises. To add a member, write its file and list it here.

base      what an objective is
plain     F alone, Eq. (7)
prox      F plus a pull to the received model (FedProx)
scaffold  F with control variates (SCAFFOLD)
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

__all__ = ["OBJECTIVES", "Objective"]
