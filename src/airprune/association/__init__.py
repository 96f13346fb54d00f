"""Who serves whom. To add a member, write its file and list it here.

base      what an association is and what it sees
fixed     the network's own edges: the paper's
nearest   the nearest station
best_rate the station with the best channel
handover  devices move from edge to edge between rounds
"""

from __future__ import annotations

from airprune.association.base import Association
from airprune.registry import Registry

ASSOCIATIONS: Registry[Association] = Registry(
    "association",
    {
        "fixed": "airprune.association.fixed:ASSOCIATION",
        "nearest": "airprune.association.nearest:ASSOCIATION",
        "best-rate": "airprune.association.best_rate:ASSOCIATION",
        "handover": "airprune.association.handover:ASSOCIATION",
    },
)

__all__ = ["ASSOCIATIONS", "Association"]
