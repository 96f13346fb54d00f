"""The paper's baseline without hierarchy: the cloud's own band serves all devices."""

from __future__ import annotations

import math

import numpy as np

from airprune.methods.topology.base import Topology, Tree, edges_below

Array = np.ndarray


class Flat(Topology):
    """Has the cloud serve the devices."""

    name = "flat"
    summary = "the cloud's own band serves all devices"
    source = "the paper's baseline"
    stations = "cloud"

    def build(self, rounds: Array) -> Tree:
        return Tree((edges_below(np.zeros(len(rounds), dtype=np.int64), rounds, math.inf),))
