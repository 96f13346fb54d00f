"""Devices matched with the blocks of all stations' bands at the least energy that meets the deadline.

All blocks are equal here, since association is decided once, over mean channels; the scheme of the same name matches an
edge's devices with its blocks in every round.
"""

from __future__ import annotations

import numpy as np

from airprune.methods.association.base import Association, AssociationView, Served, Values
from airprune.planning.schemes.blocks import offered
from airprune.planning.schemes.conflict_graph import ConflictOptions, least_energy
from airprune.planning.schemes.energy import Fit


class ConflictGraph(Association, ConflictOptions):
    """Associates by a matching of devices with blocks."""

    name = "conflict-graph"
    summary = "matching of devices with resource blocks of all edges at the least energy within the deadline"
    source = "after Al-Abiad et al., arXiv:2107.03520"

    def decide(self, view: AssociationView, values: Values) -> tuple[Served, Values]:
        """Every station has ⌈N/K⌉ blocks and the spare ones; a device without a vertex has the best channel."""
        count, num_edges = view.network.num_devices, view.network.num_edges
        blocks = -(-count // num_edges) + self.spare_blocks
        device, station = np.divmod(np.arange(count * num_edges), num_edges)
        alone = view.problem(device, station, np.arange(len(device)))
        cost, _ = offered(Fit.of(self.narrowed(alone), np.full(len(device), 1.0 / blocks)), least_energy)
        column = self.assign(np.repeat(cost.reshape(count, num_edges), blocks, axis=1))
        return view.served_by(np.where(column < 0, view.gains().argmax(axis=1), column // blocks)), values
