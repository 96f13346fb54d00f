"""FjORD's ordered dropout: every minibatch trains a width sampled among those that the device can train.

The device holds and sends the leading units of its largest width; a step uses, and moves, only those of the width that
was sampled, the same for all layers. So the leading units learn to do without the others, and every width is a model.
Evaluated is the widest that a device has held and sent; nothing is scaled.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from pydantic import Field

from airprune.methods.masking.base import Array, DeviceView, SubModel
from airprune.methods.masking.widths import LeadingUnits, graph_of, leading_mask, narrowed, width_of
from airprune.settings.section import Ratio


class Fjord(LeadingUnits):
    """The leading units, every minibatch at a width of its own."""

    name = "fjord"
    summary = "ordered dropout: leading units that fit; every minibatch trains a sampled width"
    source = "after Horváth et al. (FjORD)"
    fully_open: ClassVar = {"widths": [1.0]}

    widths: tuple[Ratio, ...] = Field(
        default=(0.2, 0.4, 0.6, 0.8, 1.0), description="shares of every hidden layer's units, ascending up to 1"
    )

    def choose(self, view: DeviceView) -> SubModel:
        graph = graph_of(view.shape)
        largest = width_of(graph, view.keep, self.widths)
        held = narrowed(graph, leading_mask(graph, largest))
        masks = [leading_mask(graph, width) for width in self.widths if width <= largest]
        if len(masks) == 1:
            return held
        sampled: list[int] = []

        def forward(step: int, weights: Array) -> Array:
            """Returns the mask of a step; widths are sampled in the order of the steps."""
            while len(sampled) <= step:
                sampled.append(int(view.rng.integers(len(masks))))
            return masks[sampled[step]]

        return dataclasses.replace(held, forward=forward, forward_only=True, units=None)
