"""FedRolex: HeteroFL's widths with a window of units that moves on by one in every round, so that all are trained.

In round t a device of width p holds units t, t + 1, …, t + ⌈p n⌉ − 1 (mod n) of every hidden layer of n units; devices
of the same width hold the same. While they train, activations are divided by p as in HeteroFL. Evaluated is the whole
model as soon as every weight was trained: sub-models of all places make it up.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from airprune.components.units import UnitGraph
from airprune.methods.masking.base import Array, DeviceView, SubModel
from airprune.methods.masking.widths import LeadingUnits, graph_of, narrowed, width_of


def window(graph: UnitGraph, width: float, first: int) -> list[Array]:
    """Returns which units of each group lie in the window of ⌈p n⌉ units that begins at `first` mod n."""
    counts = graph.counts(width).tolist()
    return [(np.arange(n) - first) % n < count for n, count in zip(graph.sizes.tolist(), counts, strict=True)]


class FedRolex(LeadingUnits):
    """A rolling window of units, at the largest width that fits."""

    name = "fedrolex"
    summary = "a rolling window of units of every hidden layer, at the largest of a few widths that fits"
    source = "after Alam et al. (FedRolex)"
    fully_open: ClassVar = {"widths": [1.0]}

    def choose(self, view: DeviceView) -> SubModel:
        graph = graph_of(view.shape)
        width = width_of(graph, view.keep, self.widths)
        mask = graph.mask(window(graph, width, view.round_index))
        return narrowed(graph, mask, [1.0 / width] * len(graph.groups))
