"""Shared by maskings that give all devices one mask, kept in a slot of the run from round to round."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from airprune.components.component import ModelShape, Owner, Slot, prunable_weights
from airprune.methods.masking.base import Array, DeviceView, Masking, RoundView, SubModel, Values, as_prepared
from airprune.methods.masking.core.masks import largest


class OneMask(Masking):
    """A masking whose `prepare` sends all devices one mask, and whose pruned weights are removed for good.

    Attributes:
      mask: the slot of the mask.
    """

    mask: ClassVar[str]

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The mask: all weights until something is pruned."""
        return (Slot(name=self.mask, owner=Owner.RUN, shape=prunable_weights, dtype="|b1", start=1.0),)

    def counts(self, view: RoundView, shared: Array | None) -> Array:
        return as_prepared(view, shared)

    def choose(self, view: DeviceView) -> SubModel:
        """The common mask is held, moved and sent."""
        return SubModel(sent=view.shared, held=view.shared, moves=view.shared)

    def stays(self, values: Values) -> Array | None:
        return unless_whole(values[self.mask])


def count_slot(name: str, size: int = 1) -> Slot:
    return Slot(name=name, owner=Owner.RUN, shape=lambda shape: (size,), dtype="<i8")


def unless_whole(mask: Array) -> Array | None:
    return None if mask.all() else mask


def fitted(mask: Array, keep: int, scores: Callable[[], Array]) -> Array | None:
    """The mask; where it has more than `keep` weights, the best of them: a round with less time takes a part of it."""
    if np.count_nonzero(mask) > keep:
        mask = largest([np.where(mask, scores(), -1.0)], keep)
    return unless_whole(mask)


def sizes_now(view: RoundView) -> Array:
    """|w| of the prunable weights, if the cloud averaged now.  [num_prunable]"""
    return np.abs(view.now()[view.shape.prunable])
