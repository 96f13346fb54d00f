"""Dynamic pruning with feedback (Lin et al.): w ← w − η ∇F(m ⊙ w), m the largest |w|, chosen anew every few steps.

The forward pass uses the largest weights, the step moves all of them: a pruned weight that keeps being pushed grows
until it is used again. Local steps are the source's, on every device. Its one dense w becomes, in a federation,
  uploads = "kept"  the devices': each sends the weights that it uses after its steps and keeps the rest to itself; next
                    time it starts from the edge's values of what it sent and from its own values of the rest
  uploads = "all"   the servers': devices receive and send dense weights, which costs the bits of the whole model and
                    misses a deadline that needs pruning; all use as many weights as the slowest one's deadline allows
The mask is chosen at the first of every few steps of a round. The model is used, and evaluated, with its largest
weights alone: as many as the device that used the most, and only weights that have been sent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, prunable_weights
from airprune.methods.masking.base import (
    FREE,
    Array,
    Charges,
    DeviceView,
    Masking,
    RoundView,
    SubModel,
    Values,
    own_mask,
)
from airprune.methods.masking.common import count_slot
from airprune.methods.masking.core.masks import choose_mask
from airprune.methods.objectives.base import LocalRun, Memory
from airprune.methods.outcome import Outcome
from airprune.settings.section import Count, Ratio

OWN, UNSENT = "dpf.own", "dpf.unsent"
USED, SENT = "dpf.used", "dpf.sent"


def sparsity_at(final: float, progress: float) -> float:
    """s_f − s_f (1 − t / t_end)³, s_f from t_end on."""
    return final - final * (1.0 - min(progress, 1.0)) ** 3


def scheduled(view: RoundView, sparsity: float, until: int) -> Array:
    """The budget, or the schedule's count where that is smaller; at least one weight per row.  [num_selected]"""
    size = view.shape.prunable_weights
    wanted = size - int(sparsity_at(sparsity, view.round_index / until) * size + 1e-9)
    return np.minimum(view.keep, max(wanted, view.shape.layers.num_rows))


def used(weights: Array, keep: int, shape: ModelShape) -> Array:
    """The largest weights."""
    return choose_mask(np.abs(weights), keep=keep, layers=shape.layers)


class Dpf(Masking):
    """Sparse forward passes, dense steps."""

    name = "dpf"
    summary = "dynamic pruning with feedback: sparse forward pass, dense steps"
    source = "after Lin et al.; the federated form is own"

    every: Count = Field(default=16, description="local steps between two masks")
    sparsity: Ratio = Field(default=0.0, description="final sparsity, where the deadline needs less")
    until: Count = Field(default=25, description="edge rounds until it is reached")
    uploads: Literal["kept", "all"] = Field(
        default="kept",
        description="weights used after the last step, the others stay on the device; or all weights, at dense cost",
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The most weights that a device used, and which were ever sent; a device's own values of those it kept."""
        found = (count_slot(USED), Slot(name=SENT, owner=Owner.RUN, shape=prunable_weights, dtype="|b1"))
        if self.uploads == "all":
            return found
        return (
            Slot(name=OWN, owner=Owner.DEVICE, shape=prunable_weights),
            Slot(name=UNSENT, owner=Owner.DEVICE, shape=prunable_weights, dtype="|b1"),
            *found,
        )

    def charges(self, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
        """A mask where a part is sent, and gradients of all weights."""
        return replace(own_mask(shape) if self.uploads == "kept" else FREE, dense_gradients=True)

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        """Returns the number of weights that all devices use, if they send all."""
        counts = scheduled(view, self.sparsity, self.until)
        if not counts.size:
            return None, values
        if self.uploads == "kept":
            return None, values | {USED: np.array([counts.max()])}
        return np.array([counts.min()]), values | {USED: np.array([counts.min()])}

    def counts(self, view: RoundView, shared: Array | None) -> Array:
        if self.uploads == "all":
            return np.full_like(view.keep, view.shape.prunable_weights)
        return scheduled(view, self.sparsity, self.until)

    def choose(self, view: DeviceView) -> SubModel:
        shape, keep, start = view.shape, self._num_used(view), None
        if self.uploads == "kept" and (unsent := view.memory[UNSENT]).any():
            start = np.where(unsent, view.memory[OWN], view.weights)
        if keep >= shape.prunable_weights:
            return SubModel(start=start)
        mask = np.zeros(0, dtype=bool)

        def forward(step: int, weights: Array) -> Array:
            nonlocal mask
            if step % self.every == 0:
                mask = used(weights, keep, shape)
            return mask

        if self.uploads == "all":
            return SubModel(forward=forward)
        return SubModel(start=start, forward=forward, sent_after=lambda trained: used(trained, keep, shape))

    def finish(self, run: LocalRun, memory: Memory) -> Values:
        if self.uploads == "all":
            return {}
        view = run.view
        trained = run.trained[view.shape.prunable]
        unsent = ~used(trained, view.keep, view.shape)
        own = view.memory[OWN]
        return {OWN: np.where(unsent, trained, 0.0).astype(own.dtype), UNSENT: unsent}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        return {SENT: values[SENT] | outcome.held[outcome.view.shape.prunable]}

    def evaluated(self, shape: ModelShape, model: Array, values: Values) -> Array:
        """Returns the model with the largest weights that were sent; the initial model whole."""
        most, sent, sizes = int(values[USED][0]), values[SENT], np.abs(model[shape.prunable])
        if most == 0 or not sent.any() or (most >= sizes.size and sent.all()):
            return model
        pruned = model.copy()
        pruned[shape.prunable] *= sent & choose_mask(np.where(sent, sizes, -1.0), keep=most, layers=shape.layers)
        return pruned

    @property
    def adapts(self) -> bool:
        return self.uploads == "kept"

    def _num_used(self, view: DeviceView) -> int:
        if self.uploads == "kept":
            return view.keep
        assert view.shared is not None
        return int(view.shared[0])
