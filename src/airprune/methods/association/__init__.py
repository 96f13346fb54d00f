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

ASSOCIATIONS: Registry[Association] = Registry(
    "association",
    {
        "fixed": "airprune.methods.association.fixed:ASSOCIATION",
        "nearest": "airprune.methods.association.nearest:ASSOCIATION",
        "best-rate": "airprune.methods.association.best_rate:ASSOCIATION",
        "handover": "airprune.methods.association.handover:ASSOCIATION",
        "hfel": "airprune.methods.association.hfel:ASSOCIATION",
        "ina": "airprune.methods.association.ina:ASSOCIATION",
        "replicator": "airprune.methods.association.replicator:ASSOCIATION",
        "conflict-graph": "airprune.methods.association.conflict_graph:ASSOCIATION",
    },
)

__all__ = ["ASSOCIATIONS", "Association"]
