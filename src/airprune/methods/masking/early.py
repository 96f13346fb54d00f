"""Pruning once, as early as possible: when the weights that would be kept have stopped changing.

Before each global round the largest weights of the cloud's model, as many as the tightest device of the first round
could train, are compared with those of the round before. Until they are similar often enough, rounds are dense and miss
the deadline.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Slot
from airprune.methods.masking.base import Array, RoundView, Values
from airprune.methods.masking.common import OneMask, count_slot, fitted, sizes_now
from airprune.methods.masking.core.masks import choose_mask
from airprune.settings.section import Count, Ratio

MASK, BEFORE, PROGRESS = "early.mask", "early.before", "early.progress"


def jaccard(one: Array, other: Array) -> float:
    """|A ∩ B| / |A ∪ B|; 1 for two empty sets."""
    either = np.count_nonzero(one | other)
    return float(np.count_nonzero(one & other) / either) if either else 1.0


class Early(OneMask):
    """Magnitude pruning, once and early."""

    name = "early"
    summary = "one-shot magnitude pruning as soon as the mask is stable; dense and past the deadline before"
    source = "after Shen et al."
    mask = MASK
    adapts: ClassVar[bool] = False
    by_data: ClassVar[bool] = False

    similarity: Ratio = Field(
        default=0.9, description="Jaccard index of the masks of two global rounds that counts as stable"
    )
    times: Count = Field(default=3, description="consecutive stable rounds before pruning")

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Stores the mask, the candidate of the last global round; target, stable rounds in a row, last round."""
        (left,) = super().slots(shape)
        return (left, replace(left, name=BEFORE), count_slot(PROGRESS, 3))

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        target, streak, last = values[PROGRESS].tolist()
        keep = int(view.keep.min())
        target = target or keep
        first = view.round_index == 0
        if values[MASK].all() and target < view.shape.prunable_weights and (first or view.global_round > last):
            size = np.abs(view.model[view.shape.prunable])
            now = choose_mask(size, keep=target, layers=view.shape.layers)
            stable = not first and jaccard(now, values[BEFORE]) >= self.similarity
            streak = streak + 1 if stable else 0
            values = {**values, BEFORE: now, MASK: now if streak >= self.times else values[MASK]}
        values = {**values, PROGRESS: np.array([target, streak, view.global_round])}
        if values[MASK].all():
            return None, values
        return fitted(values[MASK], keep, lambda: sizes_now(view)), values
