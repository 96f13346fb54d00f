"""Who serves whom. To add a member, write its file and list it here.

base      what an association is and what it sees
fixed     the network's own edges: the paper's
nearest   the nearest station
best_rate the station with the best channel
handover  devices move from edge to edge between rounds
hfel      transfers and exchanges while they lower what the edges cost
ina       the soonest end of the slowest edge
replicator  edges grow with what they pay
conflict_graph  the least energy on blocks of the stations' bands
descent   lower costs by transfers and exchanges
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
        "handover": "airprune.methods.association.handover:Handover",
        "hfel": "airprune.methods.association.hfel:Hfel",
        "ina": "airprune.methods.association.ina:Ina",
        "replicator": "airprune.methods.association.replicator:Replicator",
        "conflict-graph": "airprune.methods.association.conflict_graph:ConflictGraph",
    },
)

__all__ = ["ASSOCIATIONS", "Association"]
