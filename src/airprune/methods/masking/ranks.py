"""Ranks of adapters: a device holds, trains and sends the leading ranks of every adapter, as many as its budget buys.

The adapters that it receives are truncated: rows i < r of A and columns i < r of B. Nothing says which they are but r.
On a model without adapters the same is done to hidden units.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape
from airprune.components.units import UnitGraph
from airprune.methods.masking.base import Array, DeviceView, SubModel, Values
from airprune.methods.masking.widths import (
    WholeUnits,
    graph_of,
    leading_mask,
    narrowed,
    weights_at,
    weights_within,
    width_of,
)
from airprune.settings.section import Count


class Ranks(WholeUnits):
    """The leading ranks that fit."""

    name = "ranks"
    summary = "leading ranks of every adapter, as many as fit: truncation"
    source = "after Cho et al. (HetLoRA)"
    by_data: ClassVar[bool] = False
    fully_open: ClassVar = {}

    largest: Count | None = Field(default=None, description="largest rank of a device; none: that of the adapters")

    def num_kept(self, budget: Array, shape: ModelShape) -> Array:
        graph = graph_of(shape)
        return weights_within(graph, budget, self._widths(graph))

    def bounds(self, shape: ModelShape, values: Values) -> tuple[int, int]:
        sizes = self.sizes(shape)
        return int(sizes[0]), int(sizes[-1])

    def sizes(self, shape: ModelShape) -> Array:
        graph = graph_of(shape)
        return np.unique([weights_at(graph, width) for width in self._widths(graph)])

    def broadcast_weights(self, shape: ModelShape, largest: Array) -> Array:
        """The largest of the sub-models has all others inside."""
        return largest

    def choose(self, view: DeviceView) -> SubModel:
        graph = graph_of(view.shape)
        return narrowed(graph, leading_mask(graph, width_of(graph, view.keep, self._widths(graph))))

    def _widths(self, graph: UnitGraph) -> tuple[float, ...]:
        """Every rank up to the largest, as a share of all; adapters with fewer ranks have the same share of theirs."""
        most = 1.0 if self.largest is None else self.largest / int(graph.sizes.max())
        return tuple(width for width in graph.every_width if width <= most + 1e-9)
