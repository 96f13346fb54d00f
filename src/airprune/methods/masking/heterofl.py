"""HeteroFL: every device trains the leading units of each hidden layer, at the largest of a few widths that fits.

While they train, the activations of a layer of width p are divided by p. Where no device holds a weight, the servers
keep their old value. The same units stay in every round, so nothing tells which they are but the width.

Differs from the source: biases always travel, and those of units a device does not hold count as unchanged; outputs of
classes that a device has no samples of are not masked.
"""

from __future__ import annotations

from airprune.methods.masking.base import DeviceView, SubModel
from airprune.methods.masking.widths import LeadingUnits, graph_of, leading_mask, narrowed, width_of


class HeteroFl(LeadingUnits):
    """The leading units, at the largest width that fits."""

    name = "heterofl"
    summary = "leading units of every hidden layer, at the largest of a few widths that fits"
    source = "after Diao, Ding, Tarokh (HeteroFL)"

    def choose(self, view: DeviceView) -> SubModel:
        graph = graph_of(view.shape)
        width = width_of(graph, view.keep, self.widths)
        return narrowed(graph, leading_mask(graph, width), [1.0 / width] * len(graph.groups))
