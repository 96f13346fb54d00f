"""Who averages whom, and over which links. To add a member, write its file and list it here.

base          what a topology is: a tree of averaging nodes above the stations
hierarchical  edges below one cloud: the paper's
flat          the cloud's own band serves all devices: the paper's baseline
tree          any number of levels between edges and cloud
fog           one of the edges averages in the cloud's place
d2d           near devices upload through a master
lan           an edge's devices average among themselves; one uploads to the cloud
tiers         slower devices deliver more rarely
relay         what devices do among themselves before the uplink
root          what a topology's own round at the root takes
ensemble      models that stay apart and predict together
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
        "ensemble": "airprune.methods.topology.ensemble:Ensemble",
    },
)

__all__ = ["TOPOLOGIES", "Level", "Topology", "Tree"]
