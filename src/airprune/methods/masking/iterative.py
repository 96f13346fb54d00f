"""Iterative magnitude pruning: in the first half of the run, every few rounds the smallest weights go for good.

The target is what the tightest device of the first round can train. Until it is reached, rounds miss the
deadline, unless `late` is off: then all goes at once before the first round, which is one-shot magnitude pruning.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Slot
from airprune.components.layers import PrunableLayers
from airprune.methods.masking.base import Array, RoundView, Values
from airprune.methods.masking.common import OneMask, count_slot, fitted, sizes_now, unless_whole
from airprune.methods.masking.core.masks import choose_mask, largest
from airprune.methods.outcome import Outcome
from airprune.settings.section import Count

MASK, TARGET, DONE = "iterative.mask", "iterative.target", "iterative.done"


def rate(density: float, steps: int) -> float:
    """1 − d^(1/s): the share that each of s prunings takes of what the one before has left."""
    return float(1.0 - density ** (1.0 / steps))


def pruned(sizes: Array, mask: Array, share: float, layers: PrunableLayers) -> Array:
    """Without ⌊share · kept⌋ of the smallest kept weights of each layer."""
    left = np.zeros_like(mask)
    for layer in layers:
        kept = mask[layer.span]
        count = int(np.count_nonzero(kept))
        left[layer.span] = largest([np.where(kept, sizes[layer.span], -1.0)], count - int(share * count))
    return left


class Iterative(OneMask):
    """Magnitude pruning, step by step."""

    name = "iterative"
    summary = "iterative magnitude pruning per layer, in small steps over the first half of the run"
    source = "as in PruneFL's repository (Jiang et al.)"
    mask = MASK
    by_data: ClassVar[bool] = False

    steps: Count = Field(default=20, description="pruning steps, equally spaced over the first half of the run")
    late: bool = Field(
        default=True,
        description="miss the deadline until the last pruning step; false: one-shot pruning before the first round",
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Stores the mask, the target number of weights, and the number of pruning steps done."""
        return (*super().slots(shape), count_slot(TARGET), count_slot(DONE))

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        keep, layers = int(view.keep.min()), view.shape.layers
        if not values[TARGET][0]:
            values = {**values, TARGET: np.array([keep])}
            if not self.late:
                at_once = choose_mask(sizes_now(view), keep=keep, layers=layers)
                values |= {MASK: at_once, DONE: np.array([self.steps])}
        if values[DONE][0] < self.steps:
            return unless_whole(values[MASK]), values
        return fitted(values[MASK], keep, lambda: sizes_now(view)), values

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        """The prunings that are due after this round."""
        view = outcome.view
        half = max(1, view.num_rounds // 2)
        done, due = int(values[DONE][0]), min(self.steps, self.steps * view.round_index // half)
        if done >= due:
            return {}
        mask, sizes = values[MASK], sizes_now(view)
        share = rate(int(values[TARGET][0]) / view.shape.prunable_weights, self.steps)
        for _ in range(done, due):
            mask = pruned(sizes, mask, share, view.shape.layers)
        return {MASK: mask, DONE: np.array([due])}

    @property
    def adapts(self) -> bool:
        return not self.late
