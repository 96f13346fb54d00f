"""FjORD with distillation: in every minibatch the widest sub-model learns from labels and teaches a narrower one.

    loss(p_max, labels) + loss(p, softmax of the p_max output)

Both are propagated back, the predictions of p_max being constants in the second, and one step follows. p is sampled
among all widths up to p_max. A step computes W(p_max) + W(p) weights, on average W(p_max) + mean W(p): that is charged,
also where p_max is sampled, which has nothing to learn from itself.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from airprune.components.component import ModelShape
from airprune.methods.masking.base import FREE, Charges, DeviceView, SubModel
from airprune.methods.masking.fjord import Fjord
from airprune.methods.masking.widths import graph_of, weights_at
from airprune.wireless.device_speed.work import SecondPass


class FjordKd(Fjord):
    """Ordered dropout in which the widest sub-model teaches."""

    name = "fjord-kd"
    summary = "ordered dropout with self-distillation: the widest sub-model teaches the sampled width"
    source = "after Horváth et al. (FjORD with distillation)"
    teaches = True

    def choose(self, view: DeviceView) -> SubModel:
        held = super().choose(view)
        return held if held.forward is None else dataclasses.replace(held, forward_only=False, teaches=True)

    def charges(self, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
        """A second pass; with one width there is none to teach."""
        if len(self.widths) == 1:
            return FREE
        graph = graph_of(shape)
        kept = [weights_at(graph, width) for width in self.widths]
        means = np.cumsum(kept) / np.arange(1, len(kept) + 1)
        widest = dict(zip(kept, means.tolist(), strict=True))  # of widths with as many units, the last
        return Charges(second_pass=SecondPass(tuple(sorted(widest.items()))))
