"""HeteroFL: every device trains the leading units of each hidden layer, at the largest of a few widths that fits.

While they train, the activations of a layer of width p are divided by p. Where no device holds a weight, the servers
keep their old value. The same units stay in every round, so nothing tells which they are but the width. Evaluated is
the widest model that a device has trained, as it trained: with activations divided by its p, which is 1 for the whole
model. The source divides by p over that of its widest model and tests without: the same function.

Differs from the source: biases always travel, and those of units a device does not hold count as unchanged; outputs of
classes that a device has no samples of are not masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from airprune.components.units import UnitGraph
from airprune.methods.masking.base import Array, DeviceView, SubModel
from airprune.methods.masking.widths import LeadingUnits, graph_of, leading_mask, narrowed, width_of


class HeteroFl(LeadingUnits):
    """The leading units, at the largest width that fits."""

    name = "heterofl"
    summary = "leading units of every hidden layer, at the largest of a few widths that fits"
    source = "after Diao, Ding, Tarokh (HeteroFL)"
    fully_open: ClassVar = {"widths": [1.0]}

    def choose(self, view: DeviceView) -> SubModel:
        graph = graph_of(view.shape)
        width = width_of(graph, view.keep, self.widths)
        return narrowed(graph, leading_mask(graph, width), [1.0 / width] * len(graph.groups))

    def factors(self, graph: UnitGraph, trained: Array) -> Sequence[float]:
        return [1.0 / width_of(graph, int(np.count_nonzero(trained)), self.widths)] * len(graph.groups)
