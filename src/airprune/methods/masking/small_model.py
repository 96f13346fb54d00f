"""One small model for all devices: the leading units at the largest width that all devices can train.

The width is that of the first round's weakest device and stays for the run; a device that cannot train it in a later
round is excluded from that round. What lies outside is never trained, never sent and no part of the model that is
evaluated.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot
from airprune.components.units import UnitGraph
from airprune.methods.masking.base import Array, DeviceView, Masking, RoundView, SubModel, Values
from airprune.methods.masking.widths import graph_of, leading_mask, narrowed, weights_at, weights_within, width_of

SIZE = "small-model.weights"


class SmallModel(Masking):
    """One small model for all devices."""

    name = "small-model"
    summary = "one small model for all devices, of the largest width that every device can train"
    source = "after Cheng, Charles, Garrett, Rush (baselines of federated dropout)"
    by_data: ClassVar[bool] = False
    whole_units: ClassVar[bool] = True

    width: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="share of every hidden layer's units; none: as the slowest device of the first round allows",
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Prunable weights of the small model; 0 until the first round."""
        return (Slot(name=SIZE, owner=Owner.RUN, shape=lambda _: (1,), dtype="<i8"),)

    def num_kept(self, budget: Array, shape: ModelShape) -> Array:
        graph = graph_of(shape)
        bought = weights_within(graph, budget, self._widths(graph))
        return np.full_like(bought, bought.min())

    def bounds(self, shape: ModelShape, values: Values) -> tuple[int, int]:
        graph, settled = graph_of(shape), int(values[SIZE][0])
        if settled:
            return settled, settled
        family = self._widths(graph)
        return weights_at(graph, family[0]), weights_at(graph, family[-1])

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        """Settles the size in the first round."""
        if values[SIZE][0]:
            return None, values
        return None, values | {SIZE: np.array([view.keep.min()], dtype=np.int64)}

    def choose(self, view: DeviceView) -> SubModel:
        graph = graph_of(view.shape)
        return narrowed(graph, leading_mask(graph, width_of(graph, view.keep, self._widths(graph))))

    def evaluated(self, shape: ModelShape, model: Array, values: Values) -> Array:
        """Returns the model without the units that no device trains."""
        graph = graph_of(shape)
        small = model.copy()
        small[shape.prunable] *= leading_mask(graph, width_of(graph, int(values[SIZE][0]), self._widths(graph)))
        return small

    def _widths(self, graph: UnitGraph) -> tuple[float, ...]:
        return graph.every_width if self.width is None else (self.width,)
