"""Computes sums, maxima and sorted values over the devices of each edge, for all edges at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class EdgeGroups:
    """The devices sorted by edge, so that each edge is one slice and one pass serves all edges.

    Slices are reduced with `reduceat`, which sums pairwise: the rounding of a million equal shares
    stays near 1e-16, where a running sum would drift by 1e-11 and break a budget.

    Attributes:
      ids: edge ids, ascending.  [num_edges]
      order: device indices sorted by edge, stable; None if they already are.
      starts: where each edge's slice begins.  [num_edges]
      counts: devices of each edge.  [num_edges]
    """

    ids: Array
    order: Array | None
    starts: Array
    counts: Array

    @classmethod
    def of(cls, edge: Array) -> EdgeGroups:
        order = None
        if np.any(edge[1:] < edge[:-1]):
            order = np.argsort(edge, kind="stable")
            edge = edge[order]
        starts = np.concatenate([[0], np.flatnonzero(edge[1:] != edge[:-1]) + 1])
        return cls(edge[starts], order, starts, np.diff(starts, append=edge.size))

    @property
    def num_edges(self) -> int:
        return len(self.ids)

    def arrange(self, per_device: Array) -> Array:
        """Reorders from problem order to sorted by edge."""
        return per_device if self.order is None else per_device[self.order]

    def restore(self, arranged: Array) -> Array:
        """Reorders from sorted by edge to problem order."""
        if self.order is None:
            return arranged
        restored = np.empty_like(arranged)
        restored[self.order] = arranged
        return restored

    def spread(self, per_edge: Array) -> Array:
        """Repeats one value per edge for each of its devices, in problem order."""
        return self.restore(self.repeat(per_edge))

    def sum(self, per_device: Array) -> Array:
        """Returns Σ over the devices of each edge; `per_device` in problem order."""
        return self.sum_arranged(self.arrange(per_device))

    def max(self, per_device: Array) -> Array:
        """Returns the largest value on each edge; `per_device` in problem order."""
        return np.maximum.reduceat(self.arrange(per_device), self.starts)

    def any(self, per_device: Array) -> Array:
        """True on edges with a true device; `per_device` in problem order."""
        return np.logical_or.reduceat(self.arrange(per_device), self.starts)

    def sum_arranged(self, arranged: Array) -> Array:
        return np.add.reduceat(arranged, self.starts)

    def repeat(self, per_edge: Array) -> Array:
        """Repeats one value per edge for each of its devices, sorted by edge."""
        return np.repeat(per_edge, self.counts)

    def sorted_together(self, first: Array, second: Array) -> Array:
        """Returns both arrays' values of each edge, ascending; edge k begins at 2 starts[k].  [2 num_devices]

        Edges of one size are sorted as rows of one matrix, several times faster than one sort keyed by edge; N devices
        have at most √(2N) sizes.
        """
        merged = np.empty(2 * len(first))
        for size in np.unique(self.counts):
            start = self.starts[self.counts == size, None]
            index = start + np.arange(size)
            rows = np.concatenate([first[index], second[index]], axis=1)
            rows.sort(axis=1)
            merged[2 * start + np.arange(2 * size)] = rows
        return merged
