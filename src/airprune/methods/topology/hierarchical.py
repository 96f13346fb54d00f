"""The paper's tree: every edge is a child of the cloud, over fibre that takes no time unless told otherwise."""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from airprune.methods.topology.base import Topology, Tree, edges_below
from airprune.settings.section import Positive

Array = np.ndarray


class Hierarchical(Topology):
    """Puts every edge below one cloud."""

    name = "hierarchical"
    summary = "edges serve the devices, one cloud averages the edges"
    source = "the paper"

    backhaul_bps: Positive | None = Field(
        default=None, description="of every edge; none: takes no time, as in the paper"
    )

    def build(self, rounds: Array) -> Tree:
        rate = math.inf if self.backhaul_bps is None else self.backhaul_bps
        return Tree((edges_below(np.zeros(len(rounds), dtype=np.int64), rounds, rate),))
