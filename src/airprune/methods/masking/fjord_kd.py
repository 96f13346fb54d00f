"""FjORD with distillation: in every minibatch the widest sub-model learns from labels and teaches a narrower one.

    loss(p_max, labels) + loss(p, softmax of the p_max output)

Both are propagated back, the predictions of p_max being constants in the second, and one step follows. p is drawn among
all widths up to p_max. A step computes W(p_max) + W(p) weights, on average W(p_max) + mean W(p): that is charged, also
where p_max is drawn, which has nothing to learn from itself.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from airprune.components.component import ModelShape
from airprune.methods.masking import fjord
from airprune.methods.masking.base import FREE, Charges, DeviceView, SubModel
from airprune.methods.masking.fjord import FjordOptions
from airprune.methods.masking.widths import graph_of, weights_at
from airprune.wireless.device_speed.work import SecondPass


class FjordKdOptions(FjordOptions):
    """Among which widths a minibatch draws the one that is taught."""


def choose(options: FjordKdOptions, view: DeviceView) -> SubModel:
    held = fjord.choose(options, view)
    return held if held.forward is None else dataclasses.replace(held, forward_only=False, teaches=True)


def charges(options: FjordKdOptions, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
    """A second pass; with one width there is nobody to teach."""
    if len(options.widths) == 1:
        return FREE
    graph = graph_of(shape)
    kept = [weights_at(graph, width) for width in options.widths]
    means = np.cumsum(kept) / np.arange(1, len(kept) + 1)
    widest = dict(zip(kept, means.tolist(), strict=True))  # of widths with as many units, the last
    return Charges(second_pass=SecondPass(tuple(sorted(widest.items()))))


MASKING = dataclasses.replace(
    fjord.MASKING,
    name="fjord-kd",
    summary="as fjord; the widest sub-model learns from labels and teaches the width that was drawn",
    source="after Horváth et al. (FjORD with distillation)",
    Options=FjordKdOptions,
    choose=choose,
    charges=charges,
    teaches=True,
)
