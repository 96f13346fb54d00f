"""PruneFL: one mask for all, reconfigured every few rounds so that squared gradient per second is largest.

Devices add up the squares of their gradients, of all weights, and send them when a reconfiguration is due. The cloud
takes the smallest weights out of the mask and lets weights in as long as they raise Σ g² / Σ t. Every weight here takes
equally long, so seconds are counted in weights.

Differs from the source. Its first stage, long training on one device, is here the first edge rounds: all devices train,
and after each round the mask is reconfigured by what device 0 has seen, for the price of a mask. Later this happens
every 5 edge rounds instead of 50. The deadline caps the mask (the source's `max_density`), so the first one is the
largest weights that fit. Gradients are sent whatever the deadline: those rounds miss it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, ReportKind, Slot
from airprune.components.layers import PrunableLayers
from airprune.methods.masking.base import Array, Charges, DeviceView, RoundView, SubModel, Values
from airprune.methods.masking.common import OneMask, fitted, sizes_now
from airprune.methods.masking.core.masks import choose_mask, largest
from airprune.methods.objectives.base import LocalRun, Memory
from airprune.methods.outcome import Outcome
from airprune.settings.section import MAX_COUNT, Count, Positive, Ratio

MASK, SQUARES = "prunefl.mask", "prunefl.squares"


def with_one(shape: ModelShape) -> tuple[int, ...]:
    """One entry per prunable weight and one for all others together."""
    return (shape.prunable_weights + 1,)


def reconfigured(
    sizes: Array,
    mask: Array,
    squares: Array,
    *,
    layers: PrunableLayers,
    share: float,
    seconds: Array,
    fixed_square: float,
    fixed_seconds: float,
    at_most: int,
) -> Array:
    """The mask with the largest Σ g² / Σ t among those that contain what must stay, and at most so many weights.

    Greedy by g² / t is exact: a weight raises the quotient if its own is larger, and the best ones come first.

    Args:
      sizes: |w|; in each layer, ⌊share · kept⌋ of the smallest kept weights may go, ties stay.  [num_prunable]
      squares: g².  [num_prunable]
      seconds: t of a weight of each layer.  [num_layers]
      fixed_square, fixed_seconds: of what is never pruned.
    """
    time = np.concatenate([np.full(layer.num_weights, t) for layer, t in zip(layers, seconds.tolist(), strict=True)])
    stays = np.zeros_like(mask)
    for layer in layers:
        kept, size = mask[layer.span], sizes[layer.span]
        ranked = np.sort(size[kept])
        if ranked.size:
            stays[layer.span] = kept & (size >= ranked[min(int(share * ranked.size), ranked.size - 1)])
    if np.count_nonzero(stays) >= at_most:
        return largest([np.where(stays, sizes, -1.0)], at_most)
    others = np.flatnonzero(~stays)
    others = others[np.argsort(-squares[others] / time[others], kind="stable")]
    over = np.cumsum(np.concatenate([[fixed_square + squares[stays].sum()], squares[others]]))[:-1]
    under = np.cumsum(np.concatenate([[fixed_seconds + time[stays].sum()], time[others]]))[:-1]
    raises = squares[others] / time[others] > over / under
    admitted = others.size if raises.all() else int(np.argmin(raises))
    stays[others[: min(admitted, at_most - np.count_nonzero(stays))]] = True
    return stays


def by_weight(shape: ModelShape, squares: Array) -> Array:
    """Returns the entries of the prunable weights and the sum over all other weights.  [num_prunable + 1]"""
    others = shape.is_weight[: squares.size].copy()
    others[shape.prunable] = False
    return np.append(squares[shape.prunable], squares[others].sum())


def not_sent(view: DeviceView, run: LocalRun) -> Array:
    """All that the device has seen since the last reconfiguration, this round included."""
    assert run.gradient_sum is not None
    squares = np.square(run.gradient_sum.astype(np.float64)) * run.num_samples
    return view.memory[SQUARES] + by_weight(view.shape, squares)


class PruneFl(OneMask):
    """One mask, reconfigured by squared gradients."""

    name = "prunefl"
    summary = "one adaptive mask for all devices, reconfigured by squared gradient per second"
    source = "PruneFL (Jiang et al.), with a shorter schedule"
    fully_open: ClassVar = {"share": 0.0}
    mask = MASK
    adapts: ClassVar[bool] = False

    every: Count = Field(default=5, description="edge rounds between two reconfigurations")
    share: Ratio = Field(default=0.3, description="share of the kept weights that a reconfiguration may prune")
    half_life: Positive = Field(default=10_000.0, description="edge rounds until that share has halved")
    initial_rounds: Annotated[int, Field(ge=0, le=MAX_COUNT)] = Field(
        default=5, description="first edge rounds, each followed by a reconfiguration by the gradients of device 0"
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The mask, and what each device has not sent yet of its squared gradients."""
        return (*super().slots(shape), Slot(name=SQUARES, owner=Owner.DEVICE, shape=with_one))

    def charges(self, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
        """Gradients of all weights in every round; when due, a mask in the beginning, later one value per weight."""
        if self._is_starting(round_index):
            return Charges(always_bits=float(shape.prunable_weights), dense_gradients=True)
        late_bits = value_bits * shape.prunable_weights if self._is_due(round_index) else 0.0
        return Charges(late_bits=late_bits, dense_gradients=True)

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        keep = int(view.keep.min())
        if view.round_index == 0:
            values = {**values, MASK: choose_mask(sizes_now(view), keep=keep, layers=view.shape.layers)}
        return fitted(values[MASK], keep, lambda: sizes_now(view)), values

    def choose(self, view: DeviceView) -> SubModel:
        """The common mask, and Σ g² of the steps in the beginning, later Σ g, to be squared."""
        return replace(super().choose(view), collect=2 if self._is_starting(view.round_index) else 1)

    def report(self, run: LocalRun, before: Memory, after: Memory) -> Values:
        view = run.view
        if not self._is_due(view.round_index):
            return {}
        if not self._is_starting(view.round_index):
            return {SQUARES: not_sent(view, run)}
        assert run.gradient_sum is not None
        return {SQUARES: by_weight(view.shape, run.gradient_sum.astype(np.float64))} if view.device == 0 else {}

    def reported(self, shape: ModelShape) -> dict[str, ReportKind]:
        return {SQUARES: ("<f8", with_one(shape))}

    def finish(self, run: LocalRun, memory: Memory) -> Values:
        view = run.view
        kept = view.memory[SQUARES]
        if self._is_due(view.round_index):
            return {SQUARES: np.zeros_like(kept)}
        return {SQUARES: not_sent(view, run).astype(kept.dtype)}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        """Reconfigures the mask, if a device has reported."""
        view, sums = outcome.view, outcome.sums
        if SQUARES not in sums:
            return {}
        layers = view.shape.layers
        mask = reconfigured(
            sizes_now(view),
            values[MASK],
            sums[SQUARES][:-1],
            layers=layers,
            share=self.share * 0.5 ** (view.round_index / self.half_life),
            seconds=np.ones(len(layers)),
            fixed_square=float(sums[SQUARES][-1]),
            fixed_seconds=float(view.shape.fixed_weights),
            at_most=int(view.keep.min()),
        )
        return {MASK: mask}

    def _is_starting(self, round_index: int) -> bool:
        return round_index < self.initial_rounds

    def _is_due(self, round_index: int) -> bool:
        """Returns whether the mask is reconfigured after this round."""
        return self._is_starting(round_index) or (round_index + 1) % self.every == 0
