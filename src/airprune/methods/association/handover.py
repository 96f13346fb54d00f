"""Devices move from edge to edge between edge rounds, taking their samples and their persistent state along.

A device that moves stands to its new station as it stood to the old one, so its channel stays as it is.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, per_device
from airprune.methods.association.base import Association, AssociationView, Served, Values
from airprune.settings.section import Ratio

PLACE = "handover.moves"


class Handover(Association):
    """Moves devices at random."""

    name = "handover"
    summary = "mobility: devices hand over to other edges between edge rounds"
    source = "after Feng et al. (mobility)"
    when = "edge"
    fully_open: ClassVar = {"probability": 0.0}

    probability: Ratio = Field(
        default=0.1, description="probability that a device moves before an edge round; 0: fixed"
    )
    to: Literal["any", "neighbour"] = Field(
        default="any", description="target of a move: any other edge, or a neighbour on the ring of edges"
    )
    update: Literal["carried", "lost"] = Field(
        default="carried", description="a moving device takes part at its new edge, or loses its upload of this round"
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Stores the offset of each device around the ring of edges from where it started."""
        return (Slot(name=PLACE, owner=Owner.RUN, shape=per_device, dtype="<i8"),)

    def decide(self, view: AssociationView, values: Values) -> tuple[Served, Values]:
        start, num_edges = view.network.edge, view.network.num_edges
        draws = view.rng.random((len(start), 2))  # the same draws for every option, so that runs can be compared
        moving = (draws[:, 0] < self.probability) & (num_edges > 1)
        steps = np.where(draws[:, 1] < 0.5, 1, num_edges - 1)
        if self.to == "any" and num_edges > 1:
            steps = 1 + np.floor(draws[:, 1] * (num_edges - 1)).astype(np.int64)
        moved = (values[PLACE] + np.where(moving, steps, 0)) % num_edges
        served = Served(
            edge=(start + moved) % num_edges,
            gain=view.own_gain,
            interrupted=moving if self.update == "lost" else None,
        )
        return served, values | {PLACE: moved}
