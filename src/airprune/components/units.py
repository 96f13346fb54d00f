"""The units of a model, hidden neurons and channels, and which rows and columns of the prunable matrices go with each.

A unit that is left out takes the row that computes it and the columns that read it: what remains is a narrower model.
Channel c of a convolution whose map is flattened owns a block of columns, e.g. 49c … 49c + 48 behind a 7 × 7 map.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airprune.components.layers import Array, PrunableLayers
from airprune.errors import InvalidValue


@dataclass(frozen=True, eq=False)
class UnitGroup:
    """The units that one prunable layer computes.

    Attributes:
      layer: number of the layer whose rows they are.
      num_units: n.
      feeds: (number of a layer, unit that each of its columns reads) for every layer that reads them.
    """

    layer: int
    num_units: int
    feeds: tuple[tuple[int, Array], ...]


@dataclass(frozen=True, eq=False)
class UnitGraph:
    """All units that can be left out: those that only prunable layers read.

    Attributes:
      trouble: why units cannot be seen, if there are none.
    """

    layers: PrunableLayers
    groups: tuple[UnitGroup, ...] = ()
    trouble: str = ""

    @cached_property
    def sizes(self) -> Array:
        """n of every group.  [num_groups]"""
        return np.array([group.num_units for group in self.groups], dtype=np.int64)

    @property
    def num_units(self) -> int:
        return int(self.sizes.sum())

    def split(self, per_unit: Array) -> list[Array]:
        """An array with one entry per unit, group after group, as views of the groups' parts."""
        return np.split(per_unit, np.cumsum(self.sizes)[:-1])

    def counts(self, width: float) -> Array:
        """⌈p n⌉ units of every group, at least one; a billionth of a unit is tolerated.  [num_groups]"""
        return np.array([max(1, math.ceil(width * n - 1e-9)) for n in self.sizes.tolist()], dtype=np.int64)

    def num_weights(self, counts: Iterable[int]) -> int:
        """Prunable weights of the model that keeps so many units of each group."""
        rows = [layer.out_features for layer in self.layers]
        columns = [layer.in_features for layer in self.layers]
        for group, count in zip(self.groups, counts, strict=True):
            rows[group.layer] = count
            for layer, _ in group.feeds:
                columns[layer] = columns[layer] // group.num_units * count
        return int(sum(a * b for a, b in zip(rows, columns, strict=True)))

    @cached_property
    def every_width(self) -> tuple[float, ...]:
        """All shares p at which a group gains a unit, ascending; the last is 1."""
        steps = [np.arange(1, n + 1) / n for n in {1, *self.sizes.tolist()}]
        return tuple(np.unique(np.concatenate(steps)).tolist())

    def mask(self, kept: Sequence[Array]) -> Array:
        """Returns the mask of the prunable weights of these units.  [num_weights] bool

        Args:
          kept: of each group, which units stay.  [num_units] bool each
        """
        mask = np.ones(self.layers.num_weights, dtype=bool)
        for group, stays in zip(self.groups, kept, strict=True):
            self.layers.layers[group.layer].matrix(mask)[~stays] = False
            for layer, unit in group.feeds:
                self.layers.layers[layer].matrix(mask)[:, ~stays[unit]] = False
        return mask

    def kept(self, mask: Array) -> tuple[Array, ...]:
        """Returns the units of each group that have a weight in a mask of whole units.  [num_units] bool each"""
        return tuple(np.any(self.layers.layers[group.layer].matrix(mask), axis=1) for group in self.groups)

    def leaving(self, factors: Iterable[float]) -> Array:
        """One factor for each group on the weights that read its units, 1 elsewhere.  [num_weights]"""
        scale = np.ones(self.layers.num_weights)
        for group, factor in zip(self.groups, factors, strict=True):
            for layer, _ in group.feeds:
                self.layers.layers[layer].matrix(scale)[:] *= factor
        return scale


def leading(graph: UnitGraph, width: float) -> list[Array]:
    """The first ⌈p n⌉ units of every group: smaller widths lie inside larger ones."""
    return [np.arange(n) < count for n, count in zip(graph.sizes.tolist(), graph.counts(width).tolist(), strict=True)]


def foremost(graph: UnitGraph, width: float, keys: Array) -> list[Array]:
    """The ⌈p n⌉ units of every group with the largest keys; of equal keys the first.

    Args:
      keys: one per unit, group after group.  [num_units]
    """
    kept = []
    for part, count in zip(graph.split(keys), graph.counts(width).tolist(), strict=True):
        stays = np.zeros(len(part), dtype=bool)
        stays[np.argsort(-part, kind="stable")[:count]] = True
        kept.append(stays)
    return kept


def widest(graph: UnitGraph, keep: Array, widths: Sequence[float]) -> Array:
    """The largest of ascending `widths` whose model has at most so many prunable weights.  [len(keep)]"""
    weights = np.array([graph.num_weights(graph.counts(width)) for width in widths])
    place = np.searchsorted(weights, keep, side="right") - 1
    if np.any(place < 0):
        rule = f"must be ≥ {weights[0]}, the weights of the narrowest model"
        raise InvalidValue("widest.keep", rule, int(np.min(keep)), "Prune less: lower max_pruning_ratio.")
    return np.asarray(widths, dtype=np.float64)[place]
