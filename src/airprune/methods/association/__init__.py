"""Associations of devices with edges, one file each. To add one, write its file and list it here.

base     the class to derive from, and the values it sees
descent  transfers and exchanges of devices that lower a cost
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.association.base import Association

ASSOCIATIONS: Registry[type[Association]] = Registry(
    "association",
    {
        "fixed": "airprune.methods.association.fixed:Fixed",
        "nearest": "airprune.methods.association.nearest:Nearest",
        "best-rate": "airprune.methods.association.best_rate:BestRate",
        "a3": "airprune.methods.association.a3:A3",
        "handover": "airprune.methods.association.handover:Handover",
        "hfel": "airprune.methods.association.hfel:Hfel",
        "ina": "airprune.methods.association.ina:Ina",
        "replicator": "airprune.methods.association.replicator:Replicator",
        "conflict-graph": "airprune.methods.association.conflict_graph:ConflictGraph",
    },
)
