"""SNIP: one dense round, then the weights whose removal would change the loss least go for good.

The gradient is what the first round's devices have moved the cloud's model by; its scale does not matter for the order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.components.component import ModelShape, Owner, Slot, prunable_weights
from airprune.methods.masking.base import Masking, RoundView, Values, as_prepared, not_by_data
from airprune.methods.masking.common import fitted, hold, mask_slot, unless_whole
from airprune.methods.masking.core.masks import choose_mask

Array = np.ndarray
MASK, SCORES = "snip.mask", "snip.scores"


def slots(options: Any, shape: ModelShape) -> tuple[Slot, ...]:
    return (mask_slot(MASK), Slot(name=SCORES, owner=Owner.RUN, shape=prunable_weights, dtype="<f8"))


def saliency(before: Array, after: Array) -> Array:
    """|w g| with g = (w − w′) / η of the first round, without the 1/η that all share."""
    before = before.astype(np.float64)
    return np.abs(before * (before - after))


def prepare(options: Any, view: RoundView, values: Values) -> tuple[Array | None, Values]:
    """Everything in the first round."""
    if view.round_index == 0:
        return None, values
    return fitted(values[MASK], int(view.keep.min()), lambda: values[SCORES]), values


def update(options: Any, view: RoundView, values: Values, sums: Values) -> Values:
    if view.round_index:
        return values
    before, after = view.model[view.shape.prunable], view.now()[view.shape.prunable]
    scores = saliency(before, after)
    mask = choose_mask(scores, keep=int(view.keep.min()), layers=view.shape.layers, tie_break=np.abs(before))
    return {**values, SCORES: scores, MASK: mask}


def stays(options: Any, values: Values) -> Array | None:
    return unless_whole(values[MASK])


def late(options: Any) -> bool:
    return False


MASKING = Masking(
    name="snip",
    summary="after one dense round, the weights with the least |w · gradient| go for good",
    source="SNIP (Lee et al.), federated as in PruneFL's repository",
    slots=slots,
    choose=hold,
    prepare=prepare,
    counts=as_prepared,
    update=update,
    stays=stays,
    adapts=late,
    by_data=not_by_data,
)
