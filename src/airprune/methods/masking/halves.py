"""Halves of adapters: in a round all devices train and send A or B, and the other one stays as it is.

What the devices average is then exact: mean(B) A = mean(B A), where averages of both would be biased. B starts at zero
and A at random, so B is trained first; with turns, A and B change over from one global round to the next. On a model
without adapters the layers that compute units are A, and all others B.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot
from airprune.components.units import UnitGraph
from airprune.methods.masking.base import Array, DeviceView, Masking, RoundView, SubModel, Values, as_prepared
from airprune.methods.masking.widths import graph_of
from airprune.methods.outcome import GlobalOutcome

TURN = "halves.turn"


@lru_cache(maxsize=64)
def half(graph: UnitGraph, first: bool) -> Array:
    """The weights of A, or those of B and of all layers that belong to no adapter.  [num_prunable] bool"""
    mask = np.zeros(graph.layers.num_weights, dtype=bool)
    for group in graph.groups:
        mask[graph.layers.layers[group.layer].span] = True
    return mask if first else ~mask


class Halves(Masking):
    """Training of B alone, or of B and A in turn."""

    name = "halves"
    summary = "one half of every adapter at a time: B alone, or B and A in turn; what is averaged is exact"
    source = "after Sun et al. (FFA-LoRA), Chen et al. (RoLoRA)"
    dense_compute = 2 / 3  # forward pass and input gradients; weight gradients only for what moves
    by_data: ClassVar[bool] = False
    whole_units: ClassVar[bool] = True
    fully_open: ClassVar = {"train": "both"}

    train: Literal["b", "turns", "both"] = Field(
        default="b",
        description="what is trained: B, with A as it was initialised; B and A in turn, from one global round to the "
        "next; or both, as without this masking",
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Global rounds so far."""
        return (Slot(name=TURN, owner=Owner.RUN, shape=lambda _: (1,), dtype="<i8"),)

    def bounds(self, shape: ModelShape, values: Values) -> tuple[int, int]:
        """A device that cannot send its half is excluded."""
        mask = self._mask(shape, values)
        count = shape.prunable_weights if mask is None else int(np.count_nonzero(mask))
        return count, count

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        return self._mask(view.shape, values), values

    def counts(self, view: RoundView, shared: Array | None) -> Array:
        return as_prepared(view, shared)

    def choose(self, view: DeviceView) -> SubModel:
        return SubModel(sent=view.shared, moves=view.shared)

    def after_global_round(self, outcome: GlobalOutcome, values: Values) -> Values:
        return {TURN: values[TURN] + 1}

    def broadcast_weights(self, shape: ModelShape, largest: Array) -> Array:
        """The half that has changed since the last broadcast: B, or the larger one where they take turns."""
        if self.train == "both":
            return super().broadcast_weights(shape, largest)
        sizes = [int(np.count_nonzero(half(graph_of(shape), first))) for first in (False, True)]
        return np.full_like(largest, sizes[0] if self.train == "b" else max(sizes))

    def _mask(self, shape: ModelShape, values: Values) -> Array | None:
        if self.train == "both":
            return None
        return half(graph_of(shape), self.train == "turns" and int(values[TURN][0]) % 2 == 1)
