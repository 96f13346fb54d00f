"""The paper's tree: every edge is a child of the cloud, over fibre that takes no time unless set."""

from __future__ import annotations

from airprune.methods.topology.base import WiredTopology


class Hierarchical(WiredTopology):
    """Puts every edge below one cloud."""

    name = "hierarchical"
    summary = "edges serve the devices, one cloud averages the edges"
    source = "the paper"
