"""Describes the models of the catalogue without torch, and holds the paper's CNN as flat arrays for the native kernel.

Each is a chain of layers, convolutions of 3×3 and then fully connected ones, with a bias each. A chain has the layout
that `airprune.models.catalogue.FlatModel` finds for the module of the same name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from airprune.components.component import ModelShape
from airprune.components.layers import PrunableLayers
from airprune.components.units import UnitGraph, UnitGroup
from airprune.errors import InvalidValue, UnknownName
from airprune.models.initial_weights import centred, initial_tensors, torch_seed
from airprune.models.layout import CnnSizes, Layout, LocalModel, Shape
from airprune.models.names import EVERY_LAYER, HIDDEN, LAST, PERSONAL, PRUNABLE

Array = np.ndarray


@dataclass(frozen=True)
class Chain:
    """A model of layers one after the other.

    Attributes:
      weights: the shape of each layer's weight, [outputs, inputs] or [outputs, channels, 3, 3].
    """

    weights: Mapping[str, Shape]

    def layout(self, *, prunable: Sequence[str] = (), personal: Sequence[str] = ()) -> Layout:
        """Returns the layout for the layers that a scenario names; no prunable ones mean all fully connected ones."""
        own = [list(self.weights)[-1] if name == LAST else name for name in personal]
        by_kind = [name for name, shape in self.weights.items() if len(shape) == 2 or tuple(prunable) == (EVERY_LAYER,)]
        named = by_kind if tuple(prunable) == (EVERY_LAYER,) else list(prunable) or by_kind
        for owner, names in ((PRUNABLE, named), (PERSONAL, own)):
            for name in names:
                if name not in self.weights:
                    raise UnknownName(owner, name, self.weights)
        if len(set(named)) < len(named):
            raise InvalidValue(PRUNABLE, "must name each layer once", ", ".join(named), "Leave one out.")
        chosen = [f"{name}.weight" for name in named if name not in own]
        if not chosen:
            raise InvalidValue(PERSONAL, "must leave a layer that can be pruned", ", ".join(personal))
        shapes: dict[str, Shape] = {}
        for name, shape in self.weights.items():
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
        mine = [tensor for tensor in shapes if tensor.partition(".")[0] in own]
        return Layout.of(shapes, prunable=chosen, personal=mine)

    def shape(self, *, prunable: Sequence[str] = (), personal: Sequence[str] = ()) -> ModelShape:
        """Returns the shape of that layout."""
        layout = self.layout(prunable=prunable, personal=personal)
        return layout.shape(lambda: self.units(layout.layers))

    def units(self, layers: PrunableLayers) -> UnitGraph:
        """Returns the units of each prunable layer whose reader, the next one, is prunable too."""
        number = {layer.name.removesuffix(".weight"): n for n, layer in enumerate(layers)}
        names = list(self.weights)
        groups, held = [], []
        for name, reader in zip(names, [*names[1:], "the output"], strict=True):
            if name in number and reader in number:
                feeds = (number[reader], self._columns(name, reader))
                groups.append(UnitGroup(number[name], self.weights[name][0], (feeds,)))
            elif name in number:
                held.append(f"those of {name} by {reader}")
        if groups:
            return UnitGraph(layers, tuple(sorted(groups, key=lambda group: group.layer)))
        return UnitGraph(layers, trouble=f"all units are held in place: {', '.join(held[:3])}")

    def _columns(self, name: str, reader: str) -> Array:
        """Returns the unit that each column of the reader's matrix reads; convolutions lie channels last."""
        num_units, (_, inputs, *kernel) = self.weights[name][0], self.weights[reader]
        every = np.arange(num_units)
        return np.tile(every, math.prod(kernel)) if kernel else np.repeat(every, inputs // num_units)


def chain_of(name: str, *, input_shape: Sequence[int], num_classes: int) -> Chain | None:
    """Returns the catalogue's model of this name; None for a user's own model."""
    if name not in HIDDEN:
        return None
    if name == "mlp":
        return Chain({"fc1": (HIDDEN[name], math.prod(input_shape)), "fc2": (num_classes, HIDDEN[name])})
    return _cnn(input_shape, num_classes, HIDDEN[name])


def _cnn(input_shape: Sequence[int], num_classes: int, hidden: int) -> Chain:
    if len(input_shape) != 3:
        raise InvalidValue("Scenario.model.name", "needs images of shape [channels, height, width]", tuple(input_shape))
    channels, height, width = input_shape
    return Chain(
        {
            "conv1": (32, channels, 3, 3),
            "conv2": (64, 32, 3, 3),
            "fc1": (hidden, 64 * (height // 4) * (width // 4)),
            "fc2": (num_classes, hidden),
        }
    )


class PlainCnn(LocalModel):
    """The paper's CNN as flat arrays alone, all zero until a state is loaded."""

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        hidden: int,
        *,
        prunable: Sequence[str] = (),
        personal: Sequence[str] = (),
    ) -> None:
        self._chain = _cnn(input_shape, num_classes, hidden)
        self._input_shape = tuple(input_shape)
        super().__init__(self._chain.layout(prunable=prunable, personal=personal))
        self.state_array = np.zeros(self.num_state, np.float32)
        self.gradient_array = np.zeros(self.num_parameters, np.float32)

    def find_units(self) -> UnitGraph:
        return self._chain.units(self.layers)

    def cnn_sizes(self) -> CnnSizes:
        hidden, fc1_inputs = self._chain.weights["fc1"]
        return CnnSizes(self._input_shape[0], fc1_inputs, hidden, self._chain.weights["fc2"][0])

    def begin_training(self) -> None:
        pass

    def start(self, seed: int) -> None:
        """Loads the weights that a scenario of this seed starts from, as `catalogue.build_model` samples them."""
        tensors = dict(initial_tensors(self._chain.weights, torch_seed(seed)))
        for part in self.parts:
            layer, _, kind = part.name.partition(".")
            is_centred = kind == "weight" and layer != "conv1"
            part.view(self.state_array)[...] = centred(tensors[part.name]) if is_centred else tensors[part.name]

    def own_randomness(self) -> AbstractContextManager[None]:
        return nullcontext()

    def start_afresh(self, seed: Callable[[], int], device: str = "cpu") -> None:
        pass

    def trained_arrays(self, state: Array) -> dict[str, Array]:
        arrays = self.named_arrays(state)
        return {name: arrays[name] for layer in self._chain.weights for name in (f"{layer}.weight", f"{layer}.bias")}

    def smaller(self, kept: Sequence[Array], sample: Array) -> PlainCnn | None:
        """Returns the CNN with fewer hidden units; with fewer channels it would not be the paper's."""
        names = [layer.name.removesuffix(".weight") for layer in self.layers]
        hidden = self.cnn_sizes().hidden
        for group, stays in zip(self.shape.units.groups, kept, strict=True):
            if names[group.layer] == "fc1":
                hidden = int(np.count_nonzero(stays))
            elif not stays.all():
                return None
        return PlainCnn(self._input_shape, self.cnn_sizes().classes, hidden, prunable=names)
