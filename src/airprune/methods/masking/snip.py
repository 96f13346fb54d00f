"""SNIP: one dense round, then the weights whose removal would change the loss least go for good.

The gradient is what the first round's devices have moved the cloud's model by; its scale does not matter for the order.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from airprune.components.component import ModelShape, Owner, Slot, prunable_weights
from airprune.methods.masking.base import Array, RoundView, Values
from airprune.methods.masking.common import OneMask, fitted
from airprune.methods.masking.core.masks import choose_mask
from airprune.methods.outcome import Outcome

MASK, SCORES = "snip.mask", "snip.scores"


def saliency(before: Array, after: Array) -> Array:
    """|w g| with g = (w − w′) / η of the first round, without the 1/η that all share."""
    before = before.astype(np.float64)
    return np.abs(before * (before - after))


class Snip(OneMask):
    """Pruning by the first round's gradient."""

    name = "snip"
    summary = "one-shot pruning by connection sensitivity |w · gradient| after one dense round"
    source = "SNIP (Lee et al.), federated as in PruneFL's repository"
    mask = MASK
    adapts: ClassVar[bool] = False
    by_data: ClassVar[bool] = False

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        return (*super().slots(shape), Slot(name=SCORES, owner=Owner.RUN, shape=prunable_weights, dtype="<f8"))

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        """Returns no mask in the first round."""
        if view.round_index == 0:
            return None, values
        return fitted(values[MASK], int(view.keep.min()), lambda: values[SCORES]), values

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        view = outcome.view
        if view.round_index:
            return {}
        before, after = view.model[view.shape.prunable], view.now()[view.shape.prunable]
        scores = saliency(before, after)
        mask = choose_mask(scores, keep=int(view.keep.min()), layers=view.shape.layers, tie_break=np.abs(before))
        return {SCORES: scores, MASK: mask}
