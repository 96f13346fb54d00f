"""The device of a node, without torch where that gives the same bits: a small device installs and loads far less."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import numpy as np

from airprune.components.component import ModelShape
from airprune.errors import InvalidValue
from airprune.methods.compression.base import Wire
from airprune.models.kernels import kernel_for
from airprune.models.kernels.devices import device_named
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY, LOSSES
from airprune.models.without_torch import chain_of
from airprune.rounds.local import Device, LocalSettings
from airprune.rounds.method import Method
from airprune.rounds.model_source import plain_cnn, without_torch
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
    named = kernel_for(wanted, model, x, y, loss=train.loss, device=device, teaches=method.masking.teaches)
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


def _model(
    scenario: Scenario, wanted: str, input_shape: Sequence[int], num_classes: int, x: Array, y: Array
) -> LocalModel:
    settings = scenario.model
    needed = without_torch(scenario, x, y, input_shape=input_shape, num_classes=num_classes, kernel=wanted)
    if not needed:
        names = {"prunable": settings.prunable, "personal": settings.personal}
        return plain_cnn(settings.name, input_shape, num_classes, **names)
    if importlib.util.find_spec("torch") is None:
        way_out = "Install torch on this device, or change the scenario."
        raise InvalidValue("Scenario", "must be one that devices without torch can train", needed, way_out)
    from airprune.models.catalogue import FlatModel, build_model

    module = build_model(settings.name, input_shape=input_shape, num_classes=num_classes, seed=scenario.seed)
    return FlatModel(module, prunable=settings.prunable, personal=settings.personal, float64=settings.float64)
