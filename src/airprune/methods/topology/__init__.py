"""Topologies, one file each: the tree of averaging nodes, and its links. To add one, write its file and list it here.

base   the class to derive from, the tree, and the cost of a round at its root
relay  device-to-device groups before the uplink
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.topology.base import Level, Topology, Tree

TOPOLOGIES: Registry[type[Topology]] = Registry(
    "topology",
    {
        "hierarchical": "airprune.methods.topology.hierarchical:Hierarchical",
        "flat": "airprune.methods.topology.flat:Flat",
        "tree": "airprune.methods.topology.tree:TreeTopology",
        "fog": "airprune.methods.topology.fog:Fog",
        "d2d": "airprune.methods.topology.d2d:D2d",
        "lan": "airprune.methods.topology.lan:Lan",
        "tiers": "airprune.methods.topology.tiers:Tiers",
        "k-of-n": "airprune.methods.topology.arrivals:KOfN",
        "buffered": "airprune.methods.topology.arrivals:Buffered",
        "ensemble": "airprune.methods.topology.ensemble:Ensemble",
    },
)

__all__ = ["TOPOLOGIES", "Level", "Topology", "Tree"]
