"""The paper's tree: every edge is a child of the cloud, over fibre that takes no time unless set."""

from __future__ import annotations

import math

from pydantic import Field

from airprune.methods.topology.base import Array, Topology, Tree, star
from airprune.settings.section import Positive


class Hierarchical(Topology):
    """Puts every edge below one cloud."""

    name = "hierarchical"
    summary = "edges serve the devices, one cloud averages the edges"
    source = "the paper"

    backhaul_bps: Positive | None = Field(
        default=None, description="backhaul rate of every edge; none: takes no time, as in the paper"
    )

    def build(self, rounds: Array) -> Tree:
        return star(rounds, math.inf if self.backhaul_bps is None else self.backhaul_bps)
