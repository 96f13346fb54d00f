"""Optimisers of a device. Gradients arrive masked, so none ever moves a pruned weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from airprune.models.kernels import native

Array = np.ndarray
Step = Callable[[Array, Array], None]


def add_scaled(target: Array, values: Array, factor: float) -> None:
    """target ← target + factor · values, each entry rounded once; the same bits from the native library and torch."""
    if target.dtype == np.float32 and not native.trouble:
        native.add_scaled(target, values, factor, target)
        return
    import torch  # which devices with the native kernel do without

    torch.from_numpy(target).add_(torch.from_numpy(values), alpha=factor)


def sgd(learning_rate: float, momentum: float, weight_decay: float) -> Step:
    """w ← w − η v, v ← β v + g + decay·w: Eq. (8) with β = 0. Starts from zero on every device and round.

    A pruned weight is 0 with gradient 0, so decay and momentum leave it there.
    """
    if not momentum and not weight_decay:
        return _descent(learning_rate)
    velocity: Array | None = None

    def step(weights: Array, gradient: Array) -> None:
        nonlocal velocity
        if weight_decay:
            gradient = gradient.copy()
            add_scaled(gradient, weights, weight_decay)
        if momentum:
            if velocity is None:
                velocity = gradient.copy()
            else:
                velocity *= momentum
                velocity += gradient
            gradient = velocity
        add_scaled(weights, gradient, -learning_rate)

    return step


@lru_cache(maxsize=1)
def _descent(learning_rate: float) -> Step:
    """w ← w − η g: one for all devices of a round, since it remembers nothing."""

    def step(weights: Array, gradient: Array) -> None:
        add_scaled(weights, gradient, -learning_rate)

    return step


def adam(learning_rate: float, momentum: float, weight_decay: float) -> Step:
    """Adam with β1 = 0.9 (or `momentum` if given), β2 = 0.999, ε = 1e-8, and decay added to the gradient. By torch."""
    import torch

    beta1, beta2, epsilon = momentum or 0.9, 0.999, 1e-8
    first: torch.Tensor | None = None
    second: torch.Tensor | None = None
    count = 0

    def step(weights_array: Array, gradient_array: Array) -> None:
        nonlocal first, second, count
        weights, gradient = torch.from_numpy(weights_array), torch.from_numpy(gradient_array)
        if weight_decay:
            gradient = gradient.add(weights, alpha=weight_decay)
        if first is None or second is None:
            first, second = torch.zeros_like(weights), torch.zeros_like(weights)
        count += 1
        first.lerp_(gradient, 1.0 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        scale = learning_rate * math.sqrt(1.0 - beta2**count) / (1.0 - beta1**count)
        weights.addcdiv_(first, second.sqrt().add_(epsilon * math.sqrt(1.0 - beta2**count)), value=-scale)

    return step


OPTIMISERS: dict[str, Callable[[float, float, float], Step]] = {"sgd": sgd, "adam": adam}


def gradients_in_update(optimizer: str, momentum: float, num_steps: Array | int) -> Array:
    """‖a‖₁: the sum of the factors with which the gradients of so many steps enter an update, over −η.

        (τ − m (1 − m^τ) / (1 − m)) / (1 − m),   without momentum τ

    Adam's updates are not linear in gradients: its steps are counted.
    """
    steps = np.asarray(num_steps, dtype=np.float64)
    if optimizer != "sgd" or not momentum:
        return steps
    return (steps - momentum * (1.0 - momentum**steps) / (1.0 - momentum)) / (1.0 - momentum)
