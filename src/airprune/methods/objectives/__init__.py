"""What a device minimises. To add a member, write its file and list it here.

base      what an objective is
plain     F alone, Eq. (7)
prox      F plus a pull to the received model (FedProx)
scaffold  F with control variates (SCAFFOLD)
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.objectives.base import Objective

OBJECTIVES: Registry[Objective] = Registry(
    "objectives",
    {
        "plain": "airprune.methods.objectives.plain:OBJECTIVE",
        "prox": "airprune.methods.objectives.prox:OBJECTIVE",
        "scaffold": "airprune.methods.objectives.scaffold:OBJECTIVE",
    },
)

__all__ = ["OBJECTIVES", "Objective"]
