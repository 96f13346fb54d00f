"""Stochastic gradient descent, Eq. (8), with momentum if `train.momentum` is set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.methods.optimisers.base import Array, Optimiser, Step, StepSettings
from airprune.models.kernels import native

if TYPE_CHECKING:
    import torch


def add_scaled(target: Array, values: Array, factor: float) -> None:
    """target ← target + factor · values, each entry rounded once; the same bits from the native library and torch."""
    if target.dtype == np.float32 and not native.trouble:
        native.add_scaled(target, values, factor, target)
        return
    import torch  # which devices with the native kernel do without

    torch.from_numpy(target).add_(torch.from_numpy(values), alpha=factor)


class Sgd(Optimiser):
    """w ← w − η v, v ← β v + g: Eq. (8) with β = 0.

    A pruned weight is 0 with gradient 0, so decay and momentum leave it there.
    """

    name = "sgd"
    summary = "stochastic gradient descent, Eq. (8), with momentum if train.momentum is set"
    source = "the paper"
    decays = False
    stays = True
    by_tensor = False

    def begin(self, settings: StepSettings) -> Step:
        momentum = settings.momentum
        if not momentum:
            return descend
        velocity: Array | None = None

        def step(weights: Array, gradient: Array, learning_rate: float) -> None:
            nonlocal velocity
            if velocity is None:
                velocity = gradient.copy()
            else:
                velocity *= momentum
                velocity += gradient
            add_scaled(weights, velocity, -learning_rate)

        return step

    def torch_optimizer(self, parameters: Iterable[Any], settings: StepSettings) -> torch.optim.Optimizer:
        import torch

        return torch.optim.SGD(
            parameters, lr=settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
        )


def descend(weights: Array, gradient: Array, learning_rate: float) -> None:
    """w ← w − η g."""
    add_scaled(weights, gradient, -learning_rate)
