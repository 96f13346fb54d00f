"""Sources of a run's model, here and in its workers: without torch where that gives the same bits.

The native kernel computes the gradients of the paper's CNN, numpy and the native library all the rest of a device
round. Whatever needs torch is named by `torch_needed_for`; then the model is a torch module, pickled by value so that
classes of a user's script reach the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from airprune.methods.loops import MINIBATCH_STEPS
from airprune.methods.masking import MASKINGS
from airprune.methods.masking.core.importance import IMPORTANCES
from airprune.models.kernels import KERNELS
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY
from airprune.models.names import HIDDEN
from airprune.models.without_torch import PlainCnn
from airprune.scenario import Scenario

if TYPE_CHECKING:
    from torch import nn

Array = np.ndarray

_NATIVE = ("paper-cnn", "cifar-cnn")


class ModelSource(Protocol):
    """Small, and can be pickled."""

    def open(self) -> LocalModel:
        """A model of its own."""

    def module(self) -> nn.Module:
        """The same as a torch module."""


@dataclass(frozen=True, kw_only=True)
class TorchSource:
    """A torch module.

    Attributes:
      pickled: by value.
    """

    pickled: bytes
    prunable: tuple[str, ...]
    personal: tuple[str, ...]
    float64: bool

    def open(self) -> LocalModel:
        from airprune.models.catalogue import FlatModel

        return FlatModel(self.module(), prunable=self.prunable, personal=self.personal, float64=self.float64)

    def module(self) -> nn.Module:
        import cloudpickle  # which small devices do without

        module: nn.Module = cloudpickle.loads(self.pickled)
        return module


@dataclass(frozen=True, kw_only=True)
class PlainSource:
    """The paper's CNN without torch, as a scenario starts it."""

    name: str
    input_shape: tuple[int, ...]
    num_classes: int
    seed: int
    prunable: tuple[str, ...]
    personal: tuple[str, ...]

    def open(self) -> PlainCnn:
        model = plain_cnn(self.name, self.input_shape, self.num_classes, prunable=self.prunable, personal=self.personal)
        model.start(self.seed)
        return model

    def module(self) -> nn.Module:
        from airprune.models.catalogue import build_model

        return build_model(self.name, input_shape=self.input_shape, num_classes=self.num_classes, seed=self.seed)


def plain_cnn(
    name: str,
    input_shape: Sequence[int],
    num_classes: int,
    *,
    prunable: Sequence[str] = (),
    personal: Sequence[str] = (),
) -> PlainCnn:
    """A model of `_NATIVE`, all zero."""
    return PlainCnn(input_shape, num_classes, HIDDEN[name], prunable=prunable, personal=personal)


def source_of(
    scenario: Scenario,
    x: Array,
    y: Array,
    *,
    num_outputs: int,
    kernel: str,
    by_accuracy: bool = True,
    module: nn.Module | None = None,
) -> ModelSource:
    """Returns the source of the model that a scenario starts from.

    Args:
      x, y: samples that it is trained on.
      kernel: the one that is wanted, or auto.
      by_accuracy: whether it is evaluated by accuracy besides its loss; other metrics are of torch's tensors.
      module: in place of the scenario's own.
    """
    settings = scenario.model
    names: dict[str, Any] = {"prunable": tuple(settings.prunable), "personal": tuple(settings.personal)}
    shapes: dict[str, Any] = {"input_shape": x.shape[1:], "num_classes": num_outputs}
    if module is None and by_accuracy and not without_torch(scenario, x, y, kernel=kernel, **shapes):
        return PlainSource(name=settings.name, seed=scenario.seed, **shapes, **names)
    from airprune.models.catalogue import build_model
    from airprune.models.user_modules import pickled_module

    if module is None:
        module = build_model(settings.name, seed=scenario.seed, **shapes)
    return TorchSource(pickled=pickled_module(module), float64=settings.float64, **names)


def without_torch(
    scenario: Scenario, x: Array, y: Array, *, input_shape: Sequence[int], num_classes: int, kernel: str
) -> str:
    """Returns why the scenario's model cannot be trained without torch on these samples; empty if it can.

    Args:
      kernel: the one that is wanted, or auto.
    """
    needed = torch_needed_for(scenario) or (f"the kernel {kernel!r}" if kernel not in ("auto", "native") else "")
    if needed:
        return needed
    settings = scenario.model
    model = plain_cnn(settings.name, input_shape, num_classes, prunable=settings.prunable, personal=settings.personal)
    return KERNELS["native"].unsupported(model, x, y)


def torch_needed_for(scenario: Scenario) -> str:
    """Names what devices of a scenario cannot do without torch; empty if they can do all."""
    importance = getattr(scenario.masking.chosen("name"), "importance", None)
    reasons = {
        f"model.name = {scenario.model.name!r}": scenario.model.name not in _NATIVE,
        "model.float64": scenario.model.float64,
        "train.kernel = 'torch'": scenario.train.kernel == "torch",
        f"train.loss = {scenario.train.loss!r}": scenario.train.loss != CROSS_ENTROPY,
        f"train.device = {scenario.train.device!r}": scenario.train.device != "cpu",
        f"train.optimizer = {scenario.train.optimizer!r}": scenario.train.optimizer != "sgd",
        f"train.loop = {scenario.train.loop!r}": scenario.train.loop != MINIBATCH_STEPS,
        f"train.augmentation = {scenario.train.augmentation!r}": scenario.train.augmentation != "none",
        "diagnostics.gradients": scenario.diagnostics.gradients,
        f"masking.name = {scenario.masking.name!r}": MASKINGS[scenario.masking.name].teaches,
        f"the importance {importance!r}": importance is not None and IMPORTANCES[importance].needs_loss,
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)
