"""The paper's CNN and its siblings, and any torch module seen as one flat vector.

The vector is laid out as  [ personal layers | other parameters | prunable weights | frozen parameters, floating
buffers ]  so that a pruning mask covers one contiguous slice. Which weights are prunable is found by type (Linear) or
named by the user; weight counts for the planner follow. Personal layers stay on the devices and are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from airprune.components import ModelShape, Tensor
from airprune.errors import InvalidValue, UnknownName
from airprune.model_names import MODELS
from airprune.own_models import PERSONAL, check_module, personal_names, prunable_names
from airprune.pruning.layers import PrunableLayers
from airprune.randomness import rng_for
from airprune.unit_tracing import unit_graph


class PaperCNN(nn.Module):
    """Two 3×3 convolutions of 32 and 64 channels with 2×2 max-pooling, then 8 hidden units, then the classes.

    On 28×28 images: 18,720 convolution and 25,168 fully-connected weights. Pooling before the ReLU gives the same
    function as after it, on a quarter of the values.

    The paper does not say how weights start. Here they start as torch draws them, with every unit behind a ReLU
    centred: its inputs are all ≥ 0, so weights that do not sum to zero would hold it on, or off, for every image, and
    the luck of a few of the eight hidden units would decide the run.
    """

    def __init__(self, input_shape: Sequence[int] = (1, 28, 28), num_classes: int = 10, hidden: int = 8) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * (height // 4) * (width // 4), hidden)
        self.fc2 = nn.Linear(hidden, num_classes)
        with torch.no_grad():
            for layer in (self.conv2, self.fc1, self.fc2):
                layer.weight -= layer.weight.flatten(1).mean(1).reshape(-1, *[1] * (layer.weight.dim() - 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu_(F.max_pool2d(self.conv1(x), 2))
        x = F.relu_(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu_(self.fc1(x.flatten(1))))


class MLP(nn.Module):
    """One hidden layer of 64 units on flattened inputs; every weight is prunable."""

    def __init__(self, input_shape: Sequence[int], num_classes: int, hidden: int = 64) -> None:
        super().__init__()
        self.fc1 = nn.Linear(math.prod(input_shape), hidden)
        self.fc2 = nn.Linear(hidden, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.relu_(self.fc1(x.flatten(1))))


def paper_cnn(input_shape: Sequence[int], num_classes: int, hidden: int = 8) -> nn.Module:
    if len(input_shape) != 3:
        raise InvalidValue("Scenario.model.name", "needs images of shape [channels, height, width]", tuple(input_shape))
    return PaperCNN(input_shape, num_classes, hidden)


def cifar_cnn(input_shape: Sequence[int], num_classes: int) -> nn.Module:
    return paper_cnn(input_shape, num_classes, hidden=64)


def build_model(name: str, *, input_shape: Sequence[int], num_classes: int, seed: int) -> nn.Module:
    """A model of the catalogue with weights drawn from the scenario's seed, wherever and whenever it is built."""
    if name not in MODELS:
        raise UnknownName("Scenario.model.name", name, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng_for(seed, "initial-weights").integers(2**63)))
        module: nn.Module = MODELS[name](input_shape, num_classes)
        return module


@dataclass(frozen=True)
class _Part:
    """One tensor of the module and its place in the vector."""

    name: str
    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)

    def view(self, flat: Any) -> Any:
        """This tensor's place in a flat torch or numpy vector; convolutions lie channels last, which trains faster."""
        part = flat[self.start : self.stop]
        if len(self.shape) != 4:
            return part.reshape(self.shape)
        out, channels, height, width = self.shape
        part = part.reshape((out, height, width, channels))
        return part.permute(0, 3, 1, 2) if isinstance(part, torch.Tensor) else part.transpose(0, 3, 1, 2)


class FlatModel:
    """A torch module whose parameters, gradients and floating buffers live in flat tensors.

    The module's tensors are views, so loading a model is one copy and an optimiser step one operation.

    Attributes:
      state: parameters and floating buffers.  [num_state]
      state_array: the same memory as a numpy array.
      gradient: of the parameters only.  [num_parameters]
      prunable: where the prunable weights lie in `state`.
      layers: their matrices.
      fixed_weights: W_conv, the weights that are never pruned; biases do not count, as in the paper.
      prunable_weights: W_fully, or whatever else was named.
    """

    def __init__(
        self, module: nn.Module, *, prunable: Sequence[str] = (), personal: Sequence[str] = (), float64: bool = False
    ) -> None:
        check_module(module)
        self.module = module.to(torch.float64 if float64 else torch.float32)
        parameters = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        own = personal_names(self.module, personal)
        names = [name for name in prunable_names(self.module, prunable) if name not in own]
        if not names:
            raise InvalidValue(PERSONAL, "must leave a layer that can be pruned", ", ".join(personal))
        others = [*own, *(name for name in parameters if name not in names and name not in own)]
        constants = {name: p for name, p in self.module.named_parameters() if not p.requires_grad}
        floating = {name: b for name, b in self.module.named_buffers() if b.is_floating_point()}
        buffers = [*constants, *floating]
        tensors = {**parameters, **constants, **floating}
        self.parts: list[_Part] = []
        for name in (*others, *names, *buffers):
            start = self.parts[-1].stop if self.parts else 0
            self.parts.append(_Part(name, start, tuple(tensors[name].shape)))
        sizes = [math.prod(parameters[name].shape) for name in others]
        self.prunable = slice(sum(sizes), sum(sizes) + sum(parameters[name].numel() for name in names))
        self.num_parameters = self.prunable.stop
        self.layers = PrunableLayers.of([(n, parameters[n].shape[0], parameters[n][0].numel()) for n in names])
        self.num_personal = sum(parameters[name].numel() for name in own)
        self.fixed_weights = sum(parameters[n].numel() for n in others if parameters[n].dim() > 1 and n not in own)
        self.prunable_weights = self.layers.num_weights
        self._flatten(tensors)

    def _flatten(self, tensors: dict[str, torch.Tensor]) -> None:
        dtype = next(iter(tensors.values())).dtype
        self.state = torch.zeros(self.parts[-1].stop, dtype=dtype)
        self.state_array = self.state.numpy()
        self.gradient = torch.zeros(self.num_parameters, dtype=dtype)
        for part in self.parts:
            tensor = tensors[part.name]
            view = part.view(self.state)
            view.copy_(tensor.detach())
            tensor.data = view
            if part.start < self.num_parameters:
                tensor.grad = part.view(self.gradient)

    @property
    def num_state(self) -> int:
        return len(self.state)

    @cached_property
    def shape(self) -> ModelShape:
        """What components may know of the model."""
        common = range(self.num_personal, self.num_parameters)
        return ModelShape(
            num_state=self.num_state,
            num_parameters=self.num_parameters,
            prunable=self.prunable,
            num_personal=self.num_personal,
            personal_weights=sum(p.stop - p.start for p in self.parts if p.stop <= common.start and len(p.shape) > 1),
            layers=self.layers,
            find_units=lambda: unit_graph(self.module, self.layers),
            tensors=tuple(
                Tensor(part.name, part.start, part.stop, counted=part.start in common and len(part.shape) > 1)
                for part in self.parts
            ),
        )

    def load(self, state: np.ndarray) -> None:
        self.state_array[:] = state

    def named_arrays(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """A flat state as the module's own named tensors, for saving."""
        return {part.name: np.ascontiguousarray(part.view(state)) for part in self.parts}
