"""The paper's tree: every edge is a child of the cloud, over fibre that takes no time unless told otherwise."""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from airprune.methods.topology.base import Topology, Tree, edges_below
from airprune.settings.section import Positive, Section

Array = np.ndarray


class BackhaulOptions(Section):
    """The links between edges and cloud."""

    backhaul_bps: Positive | None = Field(
        default=None, description="of every edge; none: takes no time, as in the paper"
    )


def build(options: BackhaulOptions, rounds: Array) -> Tree:
    rate = math.inf if options.backhaul_bps is None else options.backhaul_bps
    return Tree((edges_below(np.zeros(len(rounds), dtype=np.int64), rounds, rate),))


TOPOLOGY = Topology(
    name="hierarchical",
    summary="edges serve the devices, one cloud averages the edges",
    source="the paper",
    Options=BackhaulOptions,
    build=build,
)
