"""Krum: the update that is nearest to its neighbours; multi-Krum: the mean of several such.

With f of n children suspected, the score of child n is the sum of d(n, m)² over its n − f − 2 nearest neighbours. Every
weight is that of the child with the lowest score among those that sent it, or the mean of the `keep` lowest.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from airprune.methods.aggregation.kept_models import Updates
from airprune.methods.aggregation.robust import Array, Robust, mean_of
from airprune.settings.section import Count


class Krum(Robust):
    """The most central update."""

    name = "krum"
    summary = "the update nearest to its neighbours; multi-Krum: the mean of several such"
    source = "Blanchard, El Mhamdi, Guerraoui, Stainer 2017, distances on shared weights"

    attackers: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        default=0.2, description="share f / n of the children that may be attackers, rounded up"
    )
    keep: Count = Field(default=1, description="number of updates that are averaged; more than 1: multi-Krum")

    def judge(self, updates: Updates) -> Array:
        """Returns the scores; the lowest is the most central."""
        num = len(updates)
        nearest = max(num - int(np.ceil(self.attackers * num - 1e-9)) - 2, 1)
        ordered = np.sort(updates.distances_sq() + np.diag(np.full(num, -np.inf)), axis=1)
        return ordered[:, 1 : 1 + nearest].sum(axis=1)

    def combine(self, values: Array, sent: Array, judged: Array) -> Array:
        order = np.argsort(judged, kind="stable")
        values, sent = values[order], sent[order]
        kept = sent & (np.cumsum(sent, axis=0) <= self.keep)
        return mean_of(np.where(kept, values, 0.0), kept)
