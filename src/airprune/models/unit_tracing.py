"""Finds the units of a torch module by tracing its forward pass symbolically; nothing is computed.

A layer's units can be removed if every operation that reads them is understood: on the way to the next prunable layers
only those that work unit by unit (activations, pooling, padding, dropout, batch normalisation) and flattening. An
operation that adds, mixes or returns them holds them in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional as F

from airprune.components.layers import PrunableLayers
from airprune.components.units import UnitGraph, UnitGroup

Array = np.ndarray

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# What works entry by entry, and what works map by map: the modules, and the functions of torch by their names.
_BY_ENTRY = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus),
    *(nn.Hardswish, nn.Hardtanh, nn.Sigmoid, nn.Tanh, nn.Identity, nn.Dropout, nn.AlphaDropout),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
)
_BY_MAP = (
    *(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d),
)
_ENTRY_NAMES = [
    *("relu", "relu6", "leaky_relu", "prelu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus"),
    *("hardswish", "hardtanh", "sigmoid", "tanh", "dropout", "alpha_dropout"),
]
_MAP_NAMES = [f"{kind}_pool{d}d" for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for d in (1, 2, 3)]
_SIZES = {"size", "dim", "numel"}


@dataclass(frozen=True)
class _Units:
    """The values that still are the units of one layer.

    Attributes:
      form: "vector" [batch, n], "map" [batch, n, …] or "flat", a map made a vector: a block of entries per unit.
    """

    layer: int
    form: Literal["vector", "map", "flat"]


@dataclass
class _Seen:
    """The findings of the walk over the forward pass, by the number of the layer that computes the units."""

    feeds: dict[int, list[tuple[int, Array]]] = field(default_factory=dict)
    held_by: dict[int, str] = field(default_factory=dict)


def unit_graph(module: nn.Module, layers: PrunableLayers) -> UnitGraph:
    """Returns the units that can be removed from the prunable layers of `module`, or why there are none."""
    try:
        nodes = list(fx.Tracer().trace(module).nodes)
    except Exception as error:  # whatever the module's own forward raises on symbols
        first = str(error).strip().split("\n")[0].rstrip(".")
        return UnitGraph(layers, trouble=f"its forward pass cannot be followed symbolically ({first[:120]})")
    numbers = {layer.name.removesuffix(".weight"): number for number, layer in enumerate(layers)}
    modules: dict[Any, nn.Module] = dict(module.named_modules())
    calls = [node.target for node in nodes if node.op == "call_module"]
    seen, values = _Seen(), dict[fx.Node, _Units]()
    for node in nodes:
        layer = modules[node.target] if node.op == "call_module" else None
        number = numbers.get(str(node.target)) if layer is not None and calls.count(node.target) == 1 else None
        read = [values[source] for source in node.all_input_nodes if source in values]
        passed = _passed_on(node, layer, read[0]) if len(read) == 1 else None
        columns = None if number is None or len(read) != 1 else _columns(layer, read[0].form, layers, read[0].layer)
        if columns is not None and number is not None:
            seen.feeds.setdefault(read[0].layer, []).append((number, columns))
        elif passed is None and not _asks_for_size(node):
            for units in read:
                seen.held_by.setdefault(units.layer, "the output" if node.op == "output" else str(node.target))
        if passed is not None:
            values[node] = passed
        elif number is not None and (form := _form_of_output(layer)) is not None:
            seen.feeds.setdefault(number, [])
            values[node] = _Units(number, form)
    return _graph(layers, seen)


def _graph(layers: PrunableLayers, seen: _Seen) -> UnitGraph:
    groups = tuple(
        UnitGroup(number, layers.layers[number].out_features, tuple(feeds))
        for number, feeds in sorted(seen.feeds.items())
        if feeds and number not in seen.held_by
    )
    if groups:
        return UnitGraph(layers, groups)
    held = [f"those of {layers.layers[n].name.removesuffix('.weight')} by {by}" for n, by in seen.held_by.items()]
    return UnitGraph(layers, trouble=f"all units are held in place: {', '.join(held[:3])}" if held else "it has none")


def _functions(names: Sequence[str]) -> set[Any]:
    """Returns the functions of torch and torch.nn.functional with these names, those that work in place too."""
    found = [getattr(place, name + end, None) for place in (torch, F) for name in names for end in ("", "_")]
    return {function for function in found if function is not None}


_ENTRY_FUNCTIONS, _MAP_FUNCTIONS = _functions(_ENTRY_NAMES), _functions(_MAP_NAMES)


def _passed_on(node: fx.Node, layer: nn.Module | None, units: _Units) -> _Units | None:
    """Returns the units in the node's result, if it works unit by unit or flattens a map."""
    if node.op == "call_module":
        by_unit = isinstance(layer, _BY_ENTRY) or (isinstance(layer, _BY_MAP) and units.form == "map")
        flattens = isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1)
    elif node.op == "call_method":
        by_unit = str(node.target).removesuffix("_") in _ENTRY_NAMES
        flattens = _flattens(node, str(node.target))
    else:
        by_unit = node.target in _ENTRY_FUNCTIONS or (node.target in _MAP_FUNCTIONS and units.form == "map")
        flattens = node.target in (torch.flatten, torch.reshape) and _flattens(node, node.target.__name__)
    if flattens:
        return _Units(units.layer, "flat" if units.form == "map" else units.form)
    return units if by_unit else None


def _flattens(node: fx.Node, name: str) -> bool:
    """True if all dimensions but the batch become one."""
    if name == "flatten":
        return [*node.args[1:], *node.kwargs.values()] in ([1], [1, -1])
    if name not in ("view", "reshape") or len(node.args) < 2:
        return False
    shape = node.args[1] if isinstance(node.args[1], (tuple, list)) else node.args[1:]
    return len(shape) == 2 and -1 in shape


def _form_of_output(layer: Any) -> Literal["vector", "map"] | None:
    if isinstance(layer, nn.Linear):
        return "vector"
    return "map" if isinstance(layer, _CONVOLUTIONS) and layer.groups == 1 else None


def _columns(layer: Any, form: str, layers: PrunableLayers, source: int) -> Array | None:
    """Returns the unit that each column of a layer's matrix reads, in the order of the flat state; None if unknown.

    Two-dimensional convolutions lie channels last in the state.
    """
    units = layers.layers[source].out_features
    if isinstance(layer, nn.Linear) and form != "map" and layer.in_features % units == 0:
        block = layer.in_features // units
        return np.repeat(np.arange(units), block) if form == "flat" or block == 1 else None
    if isinstance(layer, _CONVOLUTIONS) and form == "map" and layer.groups == 1 and layer.in_channels == units:
        positions = int(np.prod(layer.kernel_size))
        last = isinstance(layer, nn.Conv2d)
        return np.tile(np.arange(units), positions) if last else np.repeat(np.arange(units), positions)
    return None


def _asks_for_size(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in _SIZES
    return node.op == "call_function" and node.target is getattr and node.args[1] in ("shape", "ndim", "dtype")
