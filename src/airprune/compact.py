"""A torch module with whole units taken out: really smaller matrices, the same numbers, less work."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from airprune.models import FlatModel
from airprune.pruning.units import UnitGraph

Array = np.ndarray

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def small_model(model: FlatModel, kept: Sequence[Array], sample: torch.Tensor) -> FlatModel | None:
    """The model that has only the kept units of each group, its weights yet to be loaded; None if it cannot be made.

    That needs a module whose tensors all are weights and biases of linear layers and convolutions, and whose forward
    pass names no sizes.

    Args:
      sample: a minibatch to try it on.
    """
    module = copy.deepcopy(model.module)
    owners = {name: layer for name, layer in module.named_modules() if isinstance(layer, _LAYERS)}
    if {part.name for part in model.parts} != {
        f"{n}.{t}" for n, owner in owners.items() for t in dict(owner.named_parameters())
    }:
        return None
    shapes = {name: positions.shape for name, positions in _positions(model, kept).items()}
    for name, layer in owners.items():
        for tensor, old in list(layer.named_parameters()):
            setattr(layer, tensor, nn.Parameter(old.new_zeros(shapes[f"{name}.{tensor}"]), old.requires_grad))
        rows, columns = layer.weight.shape[:2]
        names = ("out_features", "in_features") if isinstance(layer, nn.Linear) else ("out_channels", "in_channels")
        for attribute, size in zip(names, (rows, columns), strict=True):
            setattr(layer, attribute, size)
    prunable = [layer.name.removesuffix(".weight") for layer in model.layers]
    small = FlatModel(module, prunable=prunable, float64=model.state.dtype == torch.float64)
    try:
        with torch.no_grad():
            fits = module(sample).shape == model.module(sample).shape
    except RuntimeError:
        return None
    return small if fits else None


def places(model: FlatModel, small: FlatModel, kept: Sequence[Array]) -> Array:
    """Where the entries of the small model's state lie in that of the whole one.  [small.num_state]"""
    positions = _positions(model, kept)
    found = np.empty(small.num_state, dtype=np.intp)
    for part in small.parts:
        part.view(found)[...] = positions[part.name]
    return found


def _positions(model: FlatModel, kept: Sequence[Array]) -> dict[str, Array]:
    """Of the kept entries of every tensor, in the shapes of the small tensors."""
    graph: UnitGraph = model.shape.units
    everything = np.arange(model.num_state)
    found = {part.name: part.view(everything) for part in model.parts}
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
