"""Several models that are never averaged: each learns from the devices of its own edges, and all predict together.

One model for each edge, or `members` of them among which the edges are partitioned evenly and in order. A prediction is
the mean of the members' probabilities. Between a model and its edges, links may take time; above, nothing travels.

Differs from the source, which partitions devices: here a band belongs to an edge, and its devices to one model.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from airprune.errors import InvalidValue
from airprune.methods.topology.base import Array, Level, Tree, WiredTopology, edges_below, star
from airprune.settings.section import Count


class Ensemble(WiredTopology):
    """Keeps several models apart."""

    name = "ensemble"
    summary = "ensemble of models, one per edge or group of edges, never averaged; mean prediction"
    source = "after Cheng, Charles, Garrett, Rush (ensembles against federated dropout)"
    apart = True

    members: Count | None = Field(
        default=None, description="number of models among which edges are partitioned; none: one for each edge"
    )

    def build(self, rounds: Array) -> Tree:
        edges, members = len(rounds), self.members
        if members is None:
            return star(rounds)
        if members > edges:
            raise InvalidValue(f"{self.owner}.members", f"must be at most {edges}, one for each edge", members)
        level = Level(
            name="member",
            parent=np.zeros(members, dtype=np.int64),
            rounds=np.ones(members, dtype=np.int64),
            rate_bps=np.full(members, math.inf),
        )
        return Tree((level, edges_below(np.arange(edges) * members // edges, rounds, self.wired_bps)))
