"""Dynamic pruning with feedback: the forward pass uses the largest weights, the step moves all of them.

A pruned weight that keeps being pushed grows until it is used again. In a federation a device sends what it uses at the
end of its steps and keeps the rest to itself: next time it starts from the edge's values of what it sent and from its
own values of the rest. The mask is chosen anew at the first of every few steps of a round.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, prunable_weights
from airprune.methods.masking.base import Array, Charges, DeviceView, Masking, RoundView, SubModel, Values
from airprune.methods.masking.core.masks import choose_mask
from airprune.methods.objectives.base import LocalRun, Memory
from airprune.settings.section import Count, Ratio

OWN, UNSENT = "dpf.own", "dpf.unsent"


def sparsity_at(final: float, progress: float) -> float:
    """s_f − s_f (1 − t / t_end)³, s_f from t_end on."""
    return final - final * (1.0 - min(progress, 1.0)) ** 3


def scheduled(view: RoundView, sparsity: float, until: int) -> Array:
    """The budget, or the schedule's count where that is smaller; at least one weight per row.  [num_selected]"""
    size = view.shape.prunable_weights
    wanted = size - int(sparsity_at(sparsity, view.round_index / until) * size + 1e-9)
    return np.minimum(view.keep, max(wanted, view.shape.layers.num_rows))


def used(weights: Array, view: DeviceView) -> Array:
    """The largest weights."""
    return choose_mask(np.abs(weights), keep=view.keep, layers=view.shape.layers)


class Dpf(Masking):
    """Sparse forward passes, dense steps."""

    name = "dpf"
    summary = "dynamic pruning with feedback: sparse forward pass, dense steps; unsent weights stay local"
    source = "after Lin et al.; the federated form is own"

    every: Count = Field(default=16, description="local steps between two masks")
    sparsity: Ratio = Field(default=0.0, description="final sparsity, where the deadline needs less")
    until: Count = Field(default=25, description="edge rounds until it is reached")

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The device's own values, and which weights they are of: those that it did not send."""
        return (
            Slot(name=OWN, owner=Owner.DEVICE, shape=prunable_weights),
            Slot(name=UNSENT, owner=Owner.DEVICE, shape=prunable_weights, dtype="|b1"),
        )

    def charges(self, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
        """A bitmap, and gradients of all weights."""
        return Charges(uplink_bits=float(shape.prunable_weights), dense_gradients=True)

    def counts(self, view: RoundView, shared: Array | None) -> Array:
        return scheduled(view, self.sparsity, self.until)

    def choose(self, view: DeviceView) -> SubModel:
        unsent = view.memory[UNSENT]
        start = np.where(unsent, view.memory[OWN], view.weights) if unsent.any() else None
        if view.keep >= view.shape.prunable_weights:
            return SubModel(start=start)
        mask = np.zeros(0, dtype=bool)

        def forward(step: int, weights: Array) -> Array:
            nonlocal mask
            if step % self.every == 0:
                mask = used(weights, view)
            return mask

        return SubModel(start=start, forward=forward, sent_after=lambda trained: used(trained, view))

    def finish(self, run: LocalRun, memory: Memory) -> Values:
        view = run.view
        trained = run.trained[view.shape.prunable]
        unsent = ~used(trained, view)
        own = view.memory[OWN]
        return {OWN: np.where(unsent, trained, 0.0).astype(own.dtype), UNSENT: unsent}
