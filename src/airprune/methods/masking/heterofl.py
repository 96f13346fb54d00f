"""HeteroFL: every device trains the leading units of each hidden layer, at the largest of a few widths that fits.

While they train, the activations of a layer of width p are multiplied by P/p, P being the widest width of any device:
the source's `Scaler`, which divides by the rate of a device over that of the server's model. Where no device holds a
weight, the servers keep their old value. The same units stay in every round, so nothing tells which they are but the
width. Evaluated is the model of width P without a factor, as the devices that hold it train it.

Differs from the source: P is the widest width so far in the run, where the source knows its devices' widths beforehand;
biases always travel, and those of units a device does not hold count as unchanged; outputs of
classes that a device has no samples of are not masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from airprune.components.component import ModelShape, Owner, Slot
from airprune.components.units import UnitGraph, widest
from airprune.methods.masking.base import Array, DeviceView, RoundView, SubModel, Values
from airprune.methods.masking.widths import LeadingUnits, graph_of, leading_mask, narrowed, width_of

WIDEST = "heterofl.widest"


class HeteroFl(LeadingUnits):
    """The leading units, at the largest width that fits."""

    name = "heterofl"
    summary = "leading units of every hidden layer, at the largest of a few widths that fits"
    source = "after Diao, Ding, Tarokh (HeteroFL)"
    fully_open: ClassVar = {"widths": [1.0]}

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The widest width of the run; 0 before the first round."""
        return (*super().slots(shape), Slot(name=WIDEST, owner=Owner.RUN, shape=lambda _: (1,), dtype="<f8"))

    def prepare(self, view: RoundView, values: Values) -> tuple[Array, Values]:
        """Returns P."""
        now = widest(graph_of(view.shape), view.keep, self.widths).max(initial=0.0)
        found = np.maximum(values[WIDEST], now)
        return found, values | {WIDEST: found}

    def choose(self, view: DeviceView) -> SubModel:
        graph = graph_of(view.shape)
        assert view.shared is not None
        width = width_of(graph, view.keep, self.widths)
        return narrowed(graph, leading_mask(graph, width), _factors(graph, float(view.shared[0]), width))

    def factors(self, graph: UnitGraph, trained: Array, values: Values) -> Sequence[float] | None:
        """P/p of the widest width p that a device has sent: 1 unless no device of width P has."""
        width = width_of(graph, int(np.count_nonzero(trained)), self.widths)
        return _factors(graph, float(values[WIDEST][0]), width)


def _factors(graph: UnitGraph, largest: float, width: float) -> Sequence[float] | None:
    return None if largest == width else [largest / width] * len(graph.groups)
