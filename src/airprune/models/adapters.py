"""LoRA adapters (Hu et al., 2021): W x + s B A x with a frozen W; and their ranks as units that can be left out.

Rank i of an adapter is row i of A and column i of B. Adapters are found by the names that the package PEFT gives them:
a module with `lora_A` and `lora_B`, each a layer, or several by the name of their adapter. So ranks are declared and
not traced: the forward pass around them may be any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from airprune.components.layers import PrunableLayers
from airprune.components.units import UnitGraph, UnitGroup

A, B = "lora_A", "lora_B"


class Lora(nn.Module):
    """A linear layer that is frozen, with an adapter: W x + s B A x. B starts at zero, so nothing changes at first.

    Args:
      scale: s. PEFT has `lora_alpha` / rank; here it does not depend on the rank, so that without some ranks the others
        stay as they are.
    """

    def __init__(self, base: nn.Linear, rank: int, scale: float = 2.0) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adapted: torch.Tensor = self.base(x) + self.scale * self.lora_B(self.lora_A(x))
        return adapted


def add_adapters(module: nn.Module, rank: int, *, scale: float = 2.0, layers: Sequence[str] = ()) -> nn.Module:
    """Freezes a module and gives its linear layers an adapter each, in place; returns it.

    Args:
      layers: names of those that get one; empty: all.
    """
    module.requires_grad_(False)
    linear = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    for name in layers or linear:
        owner, _, own = name.rpartition(".")
        setattr(module.get_submodule(owner), own, Lora(module.get_submodule(name), rank, scale))  # type: ignore[arg-type]
    return module


def lora_pairs(module: nn.Module) -> list[tuple[str, str]]:
    """Returns the names of the layers A and B of every adapter, in the module's order."""
    return [
        (f"{name}.{A}{adapter}".lstrip("."), f"{name}.{B}{adapter}".lstrip("."))
        for name, owner in module.named_modules()
        for adapter in _adapters(owner)
    ]


def _adapters(owner: nn.Module) -> Iterator[str]:
    """Yields the endings of the names of a module's adapters."""
    first, second = getattr(owner, A, None), getattr(owner, B, None)
    if isinstance(first, nn.ModuleDict) and isinstance(second, nn.ModuleDict):
        yield from (f".{name}" for name in first if name in second)
    elif isinstance(getattr(first, "weight", None), nn.Parameter) and hasattr(second, "weight"):
        yield ""


def declared_units(module: nn.Module, layers: PrunableLayers) -> UnitGraph | None:
    """Returns the ranks of all adapters whose two layers are prunable; None for a module without any."""
    number = {layer.name.removesuffix(".weight"): n for n, layer in enumerate(layers)}
    groups = []
    for first, second in lora_pairs(module):
        if first in number and second in number:
            rank = layers.layers[number[first]].out_features
            if layers.layers[number[second]].in_features == rank:  # not a convolution over several places
                groups.append(UnitGroup(number[first], rank, ((number[second], np.arange(rank)),)))
    return UnitGraph(layers, tuple(groups)) if groups else None
