"""Removes whole units from a torch module: smaller matrices, the same outputs, less work."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from airprune.models.catalogue import FlatModel
from airprune.models.kernels.autograd import tensor_of
from airprune.models.layout import positions

Array = np.ndarray

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def small_model(model: FlatModel, kept: Sequence[Array], sample: Array) -> FlatModel | None:
    """Returns the model with only the kept units of each group, weights not loaded; None if there is none.

    That needs a module whose tensors all are weights and biases of linear layers and convolutions, beside embeddings,
    which stay as they are, and whose forward pass names no sizes.

    Args:
      sample: a minibatch to try it on.
    """
    module = copy.deepcopy(model.module)
    owners = {name: layer for name, layer in module.named_modules() if isinstance(layer, _LAYERS)}
    tables = {f"{name}.weight" for name, layer in module.named_modules() if isinstance(layer, nn.Embedding)}
    if {part.name for part in model.parts} - tables != {
        f"{n}.{t}" for n, owner in owners.items() for t in dict(owner.named_parameters())
    }:
        return None
    shapes = {name: where.shape for name, where in positions(model, kept).items()}
    for name, layer in owners.items():
        for tensor, old in list(layer.named_parameters()):
            setattr(layer, tensor, nn.Parameter(old.new_zeros(shapes[f"{name}.{tensor}"]), old.requires_grad))
        rows, columns = layer.weight.shape[:2]
        names = ("out_features", "in_features") if isinstance(layer, nn.Linear) else ("out_channels", "in_channels")
        for attribute, size in zip(names, (rows, columns), strict=True):
            setattr(layer, attribute, size)
    prunable = [layer.name.removesuffix(".weight") for layer in model.layers]
    small = FlatModel(module, prunable=prunable, float64=model.state.dtype == torch.float64)
    batch = tensor_of(sample)
    try:
        with torch.no_grad():
            fits = module(batch).shape == model.module(batch).shape
    except RuntimeError:
        return None
    return small if fits else None
