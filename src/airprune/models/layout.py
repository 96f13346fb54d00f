"""Lays a model out as one flat vector, and defines the model interface of devices. No torch.

The vector is laid out as  [ personal layers | other parameters | prunable weights | frozen parameters, floating
buffers ]  so that a pruning mask covers one contiguous slice. Weight counts for the planner follow from it. Personal
layers stay on the devices and are not counted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from airprune.components.component import ModelShape, Tensor
from airprune.components.layers import PrunableLayers, layer_numbers
from airprune.components.units import UnitGraph

Array = np.ndarray
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One tensor of the model and its place in the vector.

    Attributes:
      layer: number of the layer that it belongs to, in the model's own order.
    """

    name: str
    start: int
    shape: Shape
    layer: int = 0

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)

    def view(self, flat: Any) -> Any:
        """Returns the view of this tensor in a flat torch or numpy vector; convolutions lie channels last: faster."""
        part = flat[self.start : self.stop]
        if len(self.shape) != 4:
            return part.reshape(self.shape)
        out, channels, height, width = self.shape
        part = part.reshape((out, height, width, channels))
        return part.transpose(0, 3, 1, 2) if isinstance(part, np.ndarray) else part.permute(0, 3, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The positions of all tensors in the vector.

    Attributes:
      prunable: the prunable weights; where they end, the trained parameters end.
      layers: their matrices.
    """

    parts: tuple[Part, ...]
    prunable: slice
    layers: PrunableLayers
    num_personal: int

    @classmethod
    def of(
        cls,
        shapes: Mapping[str, Shape],
        *,
        prunable: Sequence[str],
        personal: Sequence[str] = (),
        constants: Sequence[str] = (),
    ) -> Layout:
        """Builds the layout from all tensors by name, in the model's order; the other names are some of theirs."""
        named = {*prunable, *personal, *constants}
        before = [*personal, *(name for name in shapes if name not in named)]
        number = layer_numbers(shapes, [name for name in shapes if name not in constants])
        parts: list[Part] = []
        for name in (*before, *prunable, *constants):
            parts.append(Part(name, parts[-1].stop if parts else 0, shapes[name], number[name]))
        layers = PrunableLayers.of([(name, shapes[name][0], math.prod(shapes[name][1:])) for name in prunable])
        start = sum(math.prod(shapes[name]) for name in before)
        return cls(
            parts=tuple(parts),
            prunable=slice(start, start + layers.num_weights),
            layers=layers,
            num_personal=sum(math.prod(shapes[name]) for name in personal),
        )

    @property
    def num_state(self) -> int:
        return self.parts[-1].stop

    @property
    def num_parameters(self) -> int:
        stop: int = self.prunable.stop
        return stop

    def shape(self, find_units: Callable[[], UnitGraph]) -> ModelShape:
        """Returns what components may know of the model."""
        common = range(self.num_personal, self.num_parameters)
        return ModelShape(
            num_state=self.num_state,
            num_parameters=self.num_parameters,
            prunable=self.prunable,
            num_personal=self.num_personal,
            personal_weights=sum(p.stop - p.start for p in self.parts if p.stop <= common.start and len(p.shape) > 1),
            layers=self.layers,
            find_units=find_units,
            tensors=tuple(
                Tensor(
                    part.name,
                    part.start,
                    part.stop,
                    counted=part.start in common and len(part.shape) > 1,
                    layer=part.layer,
                )
                for part in self.parts
            ),
        )


class CnnSizes(NamedTuple):
    """The sizes of the paper's CNN; `fc1_inputs` are 64 channels times the cells after pooling."""

    channels: int
    fc1_inputs: int
    hidden: int
    classes: int


class LocalModel(ABC):
    """The model interface of devices; `airprune.models.catalogue.FlatModel` implements it for any torch module.

    Attributes:
      state_array: parameters and floating buffers.  [num_state]
      gradient_array: of the parameters, as kernels leave it.  [num_parameters]
      prunable: where the prunable weights lie in the state.
      layers: their matrices.
    """

    state_array: Array
    gradient_array: Array

    def __init__(self, layout: Layout) -> None:
        self.parts, self.layers, self.prunable = layout.parts, layout.layers, layout.prunable
        self.num_state, self.num_parameters = layout.num_state, layout.num_parameters
        self.layout = layout

    @cached_property
    def shape(self) -> ModelShape:
        """Returns what components may know of the model."""
        return self.layout.shape(self.find_units)

    @property
    def fixed_weights(self) -> int:
        """Returns W_conv, the weights that are never pruned; biases do not count, as in the paper."""
        return self.shape.fixed_weights

    @property
    def prunable_weights(self) -> int:
        """Returns W_fully, or the weights of the layers that were named."""
        return self.layers.num_weights

    def load(self, state: Array) -> None:
        self.state_array[:] = state

    def named_arrays(self, state: Array) -> dict[str, Array]:
        """Returns a flat state as the model's own named tensors, for saving."""
        return {part.name: np.ascontiguousarray(part.view(state)) for part in self.parts}

    @abstractmethod
    def find_units(self) -> UnitGraph: ...

    @abstractmethod
    def cnn_sizes(self) -> CnnSizes | str:
        """Returns the sizes of the paper's CNN, or why this is another model."""

    @abstractmethod
    def begin_training(self) -> None:
        """Prepares the gradients of a round, for layers that behave differently in evaluation."""

    @abstractmethod
    def own_randomness(self) -> AbstractContextManager[None]:
        """Isolates devices' rounds: random layers do not change the random state of other code in this process."""

    @abstractmethod
    def start_afresh(self, seed: Callable[[], int], device: str = "cpu") -> None:
        """Resets the model before a device's round: seeds random layers, restores counting buffers.

        Args:
          seed: called only if layers may be random.
          device: hardware of the kernel.
        """

    @abstractmethod
    def trained_arrays(self, state: Array) -> dict[str, Array]:
        """Returns a flat state under the names of the torch module, for its `load_state_dict`."""

    @abstractmethod
    def smaller(self, kept: Sequence[Array], sample: Array) -> Self | None:
        """Returns the model with only the kept units of each group, weights not loaded; None if there is none.

        Args:
          sample: a minibatch to try it on.
        """


def positions(model: LocalModel, kept: Sequence[Array]) -> dict[str, Array]:
    """Returns the positions of the kept entries of every tensor, in the shapes of the small tensors."""
    graph: UnitGraph = model.shape.units
    everything = np.arange(model.num_state)
    found: dict[str, Array] = {part.name: part.view(everything) for part in model.parts}
    for group, stays in zip(graph.groups, kept, strict=True):
        name = graph.layers.layers[group.layer].name
        for tensor in (name, name.removesuffix("weight") + "bias"):
            if tensor in found:
                found[tensor] = found[tensor][stays]
        for layer, unit in group.feeds:
            name = graph.layers.layers[layer].name
            size = found[name].shape[1]
            found[name] = found[name][:, stays if size == len(stays) else stays[unit]]
    return found


def places(model: LocalModel, small: LocalModel, kept: Sequence[Array]) -> Array:
    """Returns the positions of the small model's state in that of the whole one.  [small.num_state]"""
    where = positions(model, kept)
    found = np.empty(small.num_state, dtype=np.intp)
    for part in small.parts:
        part.view(found)[...] = where[part.name]
    return found
