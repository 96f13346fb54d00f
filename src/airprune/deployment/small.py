"""The device of a node, without torch where that gives the same bits: a small device installs and loads far less.

The native kernel computes the gradients of the paper's CNN, numpy and the native library all the rest of a device
round. Whatever needs torch is named by `torch_needed_for`; then the device is built around a torch module instead.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import numpy as np

from airprune.components import ModelShape
from airprune.compression.base import Wire
from airprune.errors import InvalidValue
from airprune.federation.device import Device, LocalSettings
from airprune.federation.method import Method
from airprune.flat import LocalModel
from airprune.kernels import KERNELS, kernel_for
from airprune.kernels.devices import device_named
from airprune.losses import CROSS_ENTROPY, LOSSES
from airprune.masking import MASKINGS
from airprune.model_names import HIDDEN
from airprune.plain_models import PlainCnn, chain_of
from airprune.pruning.importance import IMPORTANCES
from airprune.scenario import Scenario

Array = np.ndarray


def local_device(
    scenario: Scenario, *, input_shape: Sequence[int], num_classes: int, x: Array, y: Array, kernel: str | None = None
) -> Device:
    """What runs the device rounds of a scenario on these samples; a received model is loaded before each.

    Args:
      input_shape: of one sample; all nodes of a deployment agree on it, whatever samples they have.
      kernel: which one serves where the scenario leaves it open, so that all nodes have the same bits.
    """
    scenario.check_names()
    wanted = (kernel or "auto") if scenario.train.kernel == "auto" else scenario.train.kernel
    model = _model(scenario, wanted, input_shape, num_classes, x, y)
    train = scenario.train
    device = device_named(train.device, float64=scenario.model.float64)
    method = Method.of(scenario).local
    named = kernel_for(wanted, model, x, y, loss=train.loss, device=device, teaches=method.masking.component.teaches)
    return Device(
        model,
        x,
        y,
        LocalSettings.of(scenario, named, device),
        method,
        Wire.of(model.shape, value_bits=scenario.plan.bits_per_weight),
        loss=None if train.loss == CROSS_ENTROPY else LOSSES[train.loss],
    )


def catalogue_shape(scenario: Scenario, *, input_shape: Sequence[int], num_classes: int) -> ModelShape | None:
    """The shape of the scenario's model, without torch; None if the model is not of the catalogue."""
    model = scenario.model
    chain = chain_of(model.name, input_shape=input_shape, num_classes=num_classes)
    if chain is None:
        return None
    layout = chain.layout(prunable=model.prunable, personal=model.personal)
    return layout.shape(lambda: chain.units(layout.layers))


def torch_needed_for(scenario: Scenario) -> str:
    """What of a scenario devices cannot do without torch; empty if they can do all."""
    importance = getattr(scenario.masking.options_of("name"), "importance", None)
    reasons = {
        f"model.name = {scenario.model.name!r}": scenario.model.name not in _NATIVE,
        "model.float64": scenario.model.float64,
        "train.kernel = 'torch'": scenario.train.kernel == "torch",
        f"train.loss = {scenario.train.loss!r}": scenario.train.loss != CROSS_ENTROPY,
        f"train.device = {scenario.train.device!r}": scenario.train.device != "cpu",
        f"train.optimizer = {scenario.train.optimizer!r}": scenario.train.optimizer != "sgd",
        "diagnostics.gradients": scenario.diagnostics.gradients,
        f"masking.name = {scenario.masking.name!r}": MASKINGS[scenario.masking.name].teaches,
        f"the importance {importance!r}": importance is not None and IMPORTANCES[importance].needs_loss,
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)


_NATIVE = ("paper-cnn", "cifar-cnn")


def _model(
    scenario: Scenario, wanted: str, input_shape: Sequence[int], num_classes: int, x: Array, y: Array
) -> LocalModel:
    settings = scenario.model
    needed = torch_needed_for(scenario) or ("the kernel 'torch'" if wanted == "torch" else "")
    if not needed:
        hidden = HIDDEN[settings.name]
        plain = PlainCnn(input_shape, num_classes, hidden, prunable=settings.prunable, personal=settings.personal)
        needed = KERNELS["native"].unsupported(plain, x, y)
        if not needed:
            return plain
    if importlib.util.find_spec("torch") is None:
        way_out = "Install torch on this device, or change the scenario."
        raise InvalidValue("Scenario", "must be one that devices without torch can train", needed, way_out)
    from airprune.models import FlatModel, build_model

    module = build_model(settings.name, input_shape=input_shape, num_classes=num_classes, seed=scenario.seed)
    return FlatModel(module, prunable=settings.prunable, personal=settings.personal, float64=settings.float64)
