"""Layout of the prunable weights: layer after layer, each matrix row-major [out_features, in_features]."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airprune.checks import whole_number
from airprune.errors import InvalidValue

Array = np.ndarray


def layer_numbers(tensors: Iterable[str], trained: Collection[str]) -> dict[str, int]:
    """Returns the number of each tensor's layer, from 0 in the order of the names.

    A layer is a module that owns trained tensors: "conv1.weight" and "conv1.bias" are one. Tensors of other modules
    belong to the layer before them.

    >>> layer_numbers(["conv1.weight", "conv1.bias", "norm.mean", "fc.weight"], {"conv1.weight", "fc.weight"})
    {'conv1.weight': 0, 'conv1.bias': 0, 'norm.mean': 0, 'fc.weight': 1}
    """
    owners = {name.rpartition(".")[0] for name in trained}
    number: dict[str, int] = {}
    found: dict[str, int] = {}
    for tensor in tensors:
        owner = tensor.rpartition(".")[0]
        if owner in owners:
            number.setdefault(owner, len(number))
        found[tensor] = number.get(owner, max(len(number) - 1, 0))
    return found


@dataclass(frozen=True)
class PrunableLayer:
    """One weight matrix inside the flat vector of prunable weights; one row is one output unit.

    Attributes:
      start: index of its first weight in the vector.
    """

    name: str
    out_features: int
    in_features: int
    start: int

    @property
    def num_weights(self) -> int:
        return self.out_features * self.in_features

    @property
    def span(self) -> slice:
        return slice(self.start, self.start + self.num_weights)

    def matrix(self, flat: Array) -> Array:
        """The layer's part of a flat vector, as a view.  [out_features, in_features]"""
        return flat[self.span].reshape(self.out_features, self.in_features)


@dataclass(frozen=True)
class PrunableLayers:
    """All prunable layers in the order of the forward pass; P = W_fully of Eq. (4).

    >>> PrunableLayers.of([("fc1", 8, 3136), ("fc2", 10, 8)]).num_weights
    25168
    """

    layers: tuple[PrunableLayer, ...]

    def __post_init__(self) -> None:
        start = 0
        for layer in self.layers:
            for field in ("out_features", "in_features"):
                whole_number(f"PrunableLayer.{field}", getattr(layer, field), at_least=1, way_out=f"Layer {layer.name}")
            if layer.start != start:
                way_out = "PrunableLayers.of lays layers end to end."
                raise InvalidValue(f"PrunableLayer.start of {layer.name}", f"must be {start}", layer.start, way_out)
            start += layer.num_weights

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, int, int]]) -> PrunableLayers:
        """Layers laid end to end, from (name, out_features, in_features) in the order of the forward pass."""
        layers: list[PrunableLayer] = []
        start = 0
        for name, out_features, in_features in shapes:
            layers.append(PrunableLayer(name, out_features, in_features, start))
            start += layers[-1].num_weights
        return cls(tuple(layers))

    def __iter__(self) -> Iterator[PrunableLayer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def num_weights(self) -> int:
        return sum(layer.num_weights for layer in self.layers)

    @cached_property
    def num_rows(self) -> int:
        """Output units of all layers together."""
        return sum(layer.out_features for layer in self.layers)

    @cached_property
    def row_sizes(self) -> Array:
        """Weights of each row.  [num_rows]"""
        sizes = [np.full(layer.out_features, layer.in_features) for layer in self.layers]
        return _read_only(np.concatenate([np.zeros(0, np.intp), *sizes]).astype(np.intp))

    @cached_property
    def row_starts(self) -> Array:
        """Index of the first weight of each row.  [num_rows]"""
        return _read_only(np.cumsum(self.row_sizes) - self.row_sizes)

    @cached_property
    def row_of(self) -> Array:
        """Row of each weight, counted over all layers.  [num_weights]"""
        return _read_only(np.repeat(np.arange(self.num_rows), self.row_sizes))

    def feeds_next(self, index: int) -> bool:
        """Returns whether the outputs of layer `index` are the inputs of the next one, by their numbers."""
        if index + 1 >= len(self.layers):
            return False
        return self.layers[index].out_features == self.layers[index + 1].in_features


def _read_only(array: Array) -> Array:
    array.setflags(write=False)
    return array
