"""Defines the paper's CNN and its siblings, and any torch module as one flat vector (see `airprune.models.layout`).

Which weights are prunable is found by type (Linear) or named by the user.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from airprune.components.units import UnitGraph
from airprune.errors import InvalidValue
from airprune.models.adapters import declared_units
from airprune.models.initial_weights import centred, torch_seed
from airprune.models.kernels.devices import seed_layers
from airprune.models.kernels.image_layout import guard
from airprune.models.layout import CnnSizes, Layout, LocalModel, Part
from airprune.models.names import HIDDEN, MODELS, PERSONAL
from airprune.models.unit_tracing import unit_graph
from airprune.models.user_modules import check_module, personal_names, prunable_names


class PaperCNN(nn.Module):
    """Two 3×3 convolutions of 32 and 64 channels with 2×2 max-pooling, then 8 hidden units, then the classes.

    On 28×28 images: 18,720 convolution and 25,168 fully-connected weights. Pooling before the ReLU gives the same
    function as after it, on a quarter of the values.

    The paper does not give the initial weights. Here they are torch's defaults, with every unit behind a ReLU centred:
    its inputs are all ≥ 0, so weights that do not sum to zero would hold it on, or off, for every image, and a few of
    the eight hidden units would decide the run.
    """

    def __init__(self, input_shape: Sequence[int] = (1, 28, 28), num_classes: int = 10, hidden: int = 8) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * (height // 4) * (width // 4), hidden)
        self.fc2 = nn.Linear(hidden, num_classes)
        for layer in (self.conv2, self.fc1, self.fc2):
            layer.weight.data.copy_(torch.from_numpy(centred(layer.weight.detach().cpu().numpy())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu_(F.max_pool2d(self.conv1(x), 2))
        x = F.relu_(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu_(self.fc1(x.flatten(1))))


class MLP(nn.Module):
    """One hidden layer of 64 units on flattened inputs; every weight is prunable."""

    def __init__(self, input_shape: Sequence[int], num_classes: int, hidden: int = HIDDEN["mlp"]) -> None:
        super().__init__()
        self.fc1 = nn.Linear(math.prod(input_shape), hidden)
        self.fc2 = nn.Linear(hidden, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.relu_(self.fc1(x.flatten(1))))


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions, each batch-normalised, beside a shortcut: a 1×1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inside)) + self.shortcut(x))


class ResNet8(nn.Module):
    """The smallest residual network for CIFAR-10: 16 channels, blocks of 16, 32 and 64, mean over places, classes.

    With batch normalisation, whose running means and variances are averaged like weights but never pruned. On 32 × 32
    in colour: 77,360 weights, all of them prunable with `model.prunable = ["*"]`.
    """

    def __init__(self, input_shape: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(input_shape[0], 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2))
        self.fc = nn.Linear(64, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        return self.fc(x.mean((2, 3)))


class CharCNN(nn.Module):
    """Scores of the next character at every position: an embedding, two causal convolutions of 96 channels, classes.

    The convolutions span 5 positions, the second with gaps of 4, so that a score sees 21 characters and never a later
    one. With 65 characters: 61,040 weights, 60,000 of them in convolutions. All layers but the embedding are
    prunable with `model.prunable = ["*"]`, and the channels of both convolutions can be removed as units. Of recurrent
    layers, whose matrices are one tensor, neither is true.
    """

    EMBEDDED, CHANNELS, SPAN, GAPS = 16, 96, 5, (1, 4)

    def __init__(self, num_characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_characters, self.EMBEDDED)
        layers: list[nn.Module] = []
        inputs = self.EMBEDDED
        for gap in self.GAPS:
            before = (self.SPAN - 1) * gap
            convolution = nn.Conv1d(inputs, self.CHANNELS, self.SPAN, dilation=gap)
            layers += [nn.ConstantPad1d((before, 0), 0.0), convolution, nn.ReLU()]
            inputs = self.CHANNELS
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv1d(inputs, num_characters, 1)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """[num_samples, num_positions] → [num_samples, num_characters, num_positions]"""
        scores: torch.Tensor = self.head(self.body(self.embedding(characters).transpose(1, 2)))
        return scores


def char_cnn(input_shape: Sequence[int], num_classes: int) -> nn.Module:
    if len(input_shape) != 1:
        rule = "needs sequences of characters of shape [positions]"
        raise InvalidValue("Scenario.model.name", rule, tuple(input_shape), 'Example: data.name = "shakespeare"')
    return CharCNN(num_classes)


def resnet_8(input_shape: Sequence[int], num_classes: int) -> nn.Module:
    check_images(input_shape)
    return ResNet8(input_shape, num_classes)


def check_images(input_shape: Sequence[int]) -> None:
    if len(input_shape) != 3:
        raise InvalidValue("Scenario.model.name", "needs images of shape [channels, height, width]", tuple(input_shape))


def paper_cnn(input_shape: Sequence[int], num_classes: int, hidden: int = HIDDEN["paper-cnn"]) -> nn.Module:
    check_images(input_shape)
    return PaperCNN(input_shape, num_classes, hidden)


def cifar_cnn(input_shape: Sequence[int], num_classes: int) -> nn.Module:
    return paper_cnn(input_shape, num_classes, HIDDEN["cifar-cnn"])


def build_model(
    name: str, *, input_shape: Sequence[int], num_classes: int, seed: int, shape_only: bool = False
) -> nn.Module:
    """Builds a model of the catalogue with weights sampled by the scenario's seed, the same in every process.

    Args:
      shape_only: whether its weights do not matter, so that none are loaded or trained.
    """
    if name not in MODELS:
        raise MODELS.unknown(name, "Scenario.model.name")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed))
        module = MODELS[name].build(input_shape, num_classes)
        load: Callable[[], Any] | None = getattr(module, "load_base", None)
        if load is not None and not shape_only:
            load()
        return module


class FlatModel(LocalModel):
    """A torch module whose parameters, gradients and floating buffers live in flat tensors.

    The module's tensors are views, so loading a model is one copy and an optimiser step one operation.

    Attributes:
      state, gradient: `state_array` and `gradient_array` as tensors.
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
        constants = {name: p for name, p in self.module.named_parameters() if not p.requires_grad}
        floating = {name: b for name, b in self.module.named_buffers() if b.is_floating_point()}
        tensors = {**parameters, **constants, **floating}
        order = {name: number for number, (name, _) in enumerate(self.module.named_modules())}
        in_order = sorted(tensors, key=lambda name: order[name.rpartition(".")[0]])
        shapes = {name: tuple(tensors[name].shape) for name in in_order}
        super().__init__(Layout.of(shapes, prunable=names, personal=own, constants=[*constants, *floating]))
        self._flatten(tensors)
        guard(self.module)
        self._counters = [(whole, whole.clone()) for whole in self.module.buffers() if not whole.is_floating_point()]

    def _flatten(self, tensors: dict[str, torch.Tensor]) -> None:
        dtype = next(iter(tensors.values())).dtype
        self.state = torch.zeros(self.num_state, dtype=dtype)
        self.gradient = torch.zeros(self.num_parameters, dtype=dtype)
        self.state_array, self.gradient_array = self.state.numpy(), self.gradient.numpy()
        lay_out(self.parts, tensors, self.state, self.gradient)

    def find_units(self) -> UnitGraph:
        return declared_units(self.module, self.layers) or unit_graph(self.module, self.layers)

    def cnn_sizes(self) -> CnnSizes | str:
        module = self.module
        if type(module) is not PaperCNN:
            return "the model is not the paper's CNN"
        if _is_changed(module):
            return "the model is the paper's CNN with changes"
        fc1, fc2 = module.fc1, module.fc2
        return CnnSizes(module.conv1.in_channels, fc1.in_features, fc1.out_features, fc2.out_features)

    def begin_training(self) -> None:
        if not self.module.training:
            self.module.train()

    @contextlib.contextmanager
    def own_randomness(self) -> Iterator[None]:
        with torch.random.fork_rng(devices=[]):
            yield

    def start_afresh(self, seed: Callable[[], int], device: str = "cpu") -> None:
        seed_layers(device, seed())
        for counter, start in self._counters:
            counter.copy_(start)

    def trained_arrays(self, state: np.ndarray) -> dict[str, np.ndarray]:
        before = self.state_array.copy()
        self.load(state)
        found = {name: tensor.numpy().copy(order="C") for name, tensor in self.module.state_dict().items()}
        self.load(before)
        return found

    def smaller(self, kept: Sequence[np.ndarray], sample: np.ndarray) -> FlatModel | None:
        from airprune.models.submodule import small_model  # which makes models of this kind

        return small_model(self, kept, sample)


def lay_out(
    parts: Sequence[Part], tensors: Mapping[str, torch.Tensor], state: torch.Tensor, gradient: torch.Tensor
) -> None:
    """Moves tensors into a flat state: each becomes a view of its part, and of the gradient if it is trained."""
    for part in parts:
        tensor = tensors[part.name]
        view = part.view(state)
        view.copy_(tensor.detach())
        tensor.data = view
        if part.start < len(gradient):
            tensor.grad = part.view(gradient)


_CONVOLUTION = {
    "kernel_size": (3, 3),
    "stride": (1, 1),
    "padding": (1, 1),
    "dilation": (1, 1),
    "groups": 1,
    "padding_mode": "zeros",
}


def _is_changed(module: Any) -> bool:
    """True if a layer of a `PaperCNN` was replaced, or something hooks into the forward pass."""
    conv1, conv2, fc1, fc2 = (getattr(module, name) for name in ("conv1", "conv2", "fc1", "fc2"))
    same = (
        all(type(conv) is nn.Conv2d and _CONVOLUTION.items() <= vars(conv).items() for conv in (conv1, conv2))
        and all(type(fc) is nn.Linear for fc in (fc1, fc2))
        and (conv1.out_channels, conv2.in_channels, conv2.out_channels) == (32, 32, 64)
        and fc1.out_features == fc2.in_features
        and all(layer.bias is not None for layer in (conv1, conv2, fc1, fc2))
    )
    hooks = [part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in module.modules()]
    return not same or any(hooks)
