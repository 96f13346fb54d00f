"""FedDST: one sparse mask for all; every few rounds each device drops small weights and grows others by their gradient.

The first mask has the largest weights of the initial model, as in the authors' code, or random ones, by Erdős–Rényi
shares of the layers. In a readjusting round a device drops a share of each layer, regrows as many by the size of the
gradient of its first minibatch, from zero, and trains and sends what it has then, with its mask. The cloud prunes the
union to the old size by magnitude.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, ReportKind, prunable_weights
from airprune.components.layers import PrunableLayers
from airprune.methods.masking.base import FREE, Array, Charges, DeviceView, RoundView, SubModel, Values, own_mask
from airprune.methods.masking.common import OneMask, sizes_now, unless_whole
from airprune.methods.masking.core.masks import largest
from airprune.methods.objectives.base import LocalRun, Memory
from airprune.methods.outcome import Outcome
from airprune.settings.section import Count, Ratio

MASK, UNION = "feddst.mask", "feddst.union"


def layer_counts(layers: PrunableLayers, keep: int) -> list[int]:
    """Kept weights of each layer: sparsities in proportion to 1 − (in + out) / (in · out), `keep` in all.

    What rounding leaves is the largest layer's.
    """
    sizes = np.array([layer.num_weights for layer in layers])
    spread = np.array([layer.in_features + layer.out_features for layer in layers])
    sparsity = np.maximum(1.0 - spread / sizes, 0.0)
    pruned = float((sparsity * sizes).sum())
    if pruned > 0.0:
        sparsity = np.minimum(sparsity * (sizes.sum() - keep) / pruned, 1.0)
    kept = np.floor((1.0 - sparsity) * sizes + 1e-9).astype(np.int64)
    largest_layer = int(np.argmax(sizes))
    kept[largest_layer] += keep - kept.sum()
    return [int(count) for count in kept]


def by_layer(scores: Array, keep: int, layers: PrunableLayers) -> Array:
    """The highest scores of each layer, as many as its count."""
    if keep >= layers.num_weights:
        return np.ones(layers.num_weights, dtype=bool)
    mask = np.zeros(layers.num_weights, dtype=bool)
    for layer, count in zip(layers, layer_counts(layers, keep), strict=True):
        mask[layer.span] = largest([scores[layer.span]], count)
    return mask


def readjusted(
    weights: Array, mask: Array, gradient: Array, share: float, layers: PrunableLayers
) -> tuple[Array, Array]:
    """(the new mask, what has grown): ⌊share · kept⌋ of each layer's weights swapped, smallest |w| for largest |g|."""
    new, grown = np.zeros_like(mask), np.zeros_like(mask)
    for layer in layers:
        place = layer.span
        count = int(np.count_nonzero(mask[place]))
        swapped = int(share * count)
        kept = largest([np.where(mask[place], np.abs(weights[place]), -1.0)], count - swapped)
        grown[place] = largest([np.where(kept, -1.0, np.abs(gradient[place]))], swapped)
        new[place] = kept | grown[place]
    return new, grown


class FedDst(OneMask):
    """One sparse mask that devices readjust."""

    name = "feddst"
    summary = "dynamic sparse training: devices prune and regrow one sparse mask every few rounds"
    source = "after FedDST (Bibikar et al.), rules of the authors' code"
    mask = MASK

    first: Literal["magnitude", "random"] = Field(
        default="magnitude",
        description="weights of the first mask within each layer: the largest of the initial model, or random ones",
    )
    every: Count = Field(default=5, description="edge rounds between two readjustments")
    share: Ratio = Field(
        default=0.5, description="share of each layer's kept weights that the first readjustment would prune and regrow"
    )
    until: Count = Field(default=25, description="edge rounds in which that share decays to zero, by a cosine")

    def share_at(self, round_index: int) -> float:
        """α/2 (1 + cos(π t / t_end)), 0 from t_end on."""
        if round_index >= self.until:
            return 0.0
        return self.share / 2.0 * (1.0 + math.cos(math.pi * round_index / self.until))

    def readjusts(self, round_index: int) -> bool:
        """Returns whether devices swap weights in this round."""
        return (round_index - 1) % self.every == 0 and round_index > 0 and self.share_at(round_index) > 0.0

    def charges(self, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
        """A readjustment costs a minibatch and a mask."""
        if not self.readjusts(round_index):
            return FREE
        return replace(own_mask(shape), probe=True)

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        keep, layers = int(view.keep.min()), view.shape.layers
        if view.round_index == 0:
            scores = sizes_now(view) if self.first == "magnitude" else view.run_rng().random(layers.num_weights)
            values = {**values, MASK: by_layer(scores, keep, layers)}
        mask = values[MASK]
        if np.count_nonzero(mask) > keep:
            mask = by_layer(np.where(mask, sizes_now(view), -1.0), keep, layers)
        return unless_whole(mask), values

    def choose(self, view: DeviceView) -> SubModel:
        if not self._swaps(view):
            return super().choose(view)
        mask, grown = self._readjusted(view)
        return SubModel(sent=mask, held=mask, moves=mask, start=np.where(grown, 0.0, view.weights))

    def report(self, run: LocalRun, before: Memory, after: Memory) -> Values:
        """Reports the device's mask: the sum is the number of devices that hold each weight."""
        view = run.view
        return {UNION: self._readjusted(view)[0].astype(np.int64)} if self._swaps(view) else {}

    def reported(self, shape: ModelShape) -> dict[str, ReportKind]:
        return {UNION: ("<i8", prunable_weights(shape))}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        """After a readjustment, the union of all masks is pruned to the size that fits."""
        view, sums = outcome.view, outcome.sums
        if UNION not in sums:
            return {}
        scores = np.where(sums[UNION] > 0, sizes_now(view), -1.0)
        return {MASK: by_layer(scores, int(view.keep.min()), view.shape.layers)}

    def _swaps(self, view: DeviceView) -> bool:
        return view.shared is not None and self.readjusts(view.round_index)

    def _readjusted(self, view: DeviceView) -> tuple[Array, Array]:
        assert view.shared is not None
        share = self.share_at(view.round_index)
        return readjusted(view.weights, view.shared, view.dense_gradient, share, view.shape.layers)
