"""Iterative magnitude pruning: in the first half of the run, every few rounds the smallest weights go for good.

The target is what the tightest device of the first round can carry. Until it is reached, rounds are later than the
deadline, unless `late` is off: then all goes at once before the first round, which is one-shot magnitude pruning.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Slot
from airprune.components.layers import PrunableLayers
from airprune.methods.masking.base import Masking, RoundView, Values, as_prepared, not_by_data
from airprune.methods.masking.common import count_slot, fitted, hold, mask_slot, sizes_now, unless_whole
from airprune.methods.masking.core.masks import choose_mask, largest
from airprune.settings.section import Count, Section

Array = np.ndarray
MASK, TARGET, DONE = "iterative.mask", "iterative.target", "iterative.done"


class IterativeOptions(Section):
    """How gradually weights go."""

    steps: Count = Field(default=20, description="prunings, equally spaced in the first half of the run")
    late: bool = Field(
        default=True, description="miss the deadline until the last pruning; false: prune all before the first round"
    )


def slots(options: IterativeOptions, shape: ModelShape) -> tuple[Slot, ...]:
    """What is left, how many weights shall be left, and prunings done."""
    return (mask_slot(MASK), count_slot(TARGET), count_slot(DONE))


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


def prepare(options: IterativeOptions, view: RoundView, values: Values) -> tuple[Array | None, Values]:
    keep, layers = int(view.keep.min()), view.shape.layers
    if not values[TARGET][0]:
        values = {**values, TARGET: np.array([keep])}
        if not options.late:
            at_once = choose_mask(sizes_now(view), keep=keep, layers=layers)
            values |= {MASK: at_once, DONE: np.array([options.steps])}
    if values[DONE][0] < options.steps:
        return unless_whole(values[MASK]), values
    return fitted(values[MASK], keep, lambda: sizes_now(view)), values


def update(options: IterativeOptions, view: RoundView, values: Values, sums: Values) -> Values:
    """The prunings that are due after this round."""
    half = max(1, view.num_rounds // 2)
    done, due = int(values[DONE][0]), min(options.steps, options.steps * view.round_index // half)
    if done >= due:
        return values
    mask, sizes = values[MASK], sizes_now(view)
    share = rate(int(values[TARGET][0]) / view.shape.prunable_weights, options.steps)
    for _ in range(done, due):
        mask = pruned(sizes, mask, share, view.shape.layers)
    return {**values, MASK: mask, DONE: np.array([due])}


def stays(options: IterativeOptions, values: Values) -> Array | None:
    return unless_whole(values[MASK])


def adapts(options: IterativeOptions) -> bool:
    return not options.late


MASKING = Masking(
    name="iterative",
    summary="the smallest weights of each layer go for good, in many small steps of the first half of the run",
    source="as in PruneFL's repository (Jiang et al.)",
    Options=IterativeOptions,
    slots=slots,
    choose=hold,
    prepare=prepare,
    counts=as_prepared,
    update=update,
    stays=stays,
    adapts=adapts,
    by_data=not_by_data,
)
