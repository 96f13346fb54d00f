"""Local steps on flat vectors. Gradients arrive masked, so no optimiser ever moves a pruned weight."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

Step = Callable[[torch.Tensor, torch.Tensor], None]


def sgd(learning_rate: float, momentum: float, weight_decay: float) -> Step:
    """w ← w − η v, v ← β v + g + decay·w: Eq. (8) with β = 0. Starts from zero on every device and round.

    A pruned weight is 0 with gradient 0, so decay and momentum leave it there.
    """
    velocity: torch.Tensor | None = None

    def step(weights: torch.Tensor, gradient: torch.Tensor) -> None:
        nonlocal velocity
        if weight_decay:
            gradient = gradient.add(weights, alpha=weight_decay)
        if momentum:
            velocity = gradient.clone() if velocity is None else velocity.mul_(momentum).add_(gradient)
            gradient = velocity
        weights.add_(gradient, alpha=-learning_rate)

    return step


def adam(learning_rate: float, momentum: float, weight_decay: float) -> Step:
    """Adam with β1 = 0.9 (or `momentum` if given), β2 = 0.999, ε = 1e-8, and decay added to the gradient."""
    beta1, beta2, epsilon = momentum or 0.9, 0.999, 1e-8
    first: torch.Tensor | None = None
    second: torch.Tensor | None = None
    count = 0

    def step(weights: torch.Tensor, gradient: torch.Tensor) -> None:
        nonlocal first, second, count
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


def learning_rate_at(
    global_round: int, *, base: float, schedule: str, global_rounds: int, step_every: int, step_factor: float
) -> float:
    """η of one global round (counted from 0): constant, times a factor every few rounds, or half a cosine to zero."""
    if schedule == "step":
        return base * step_factor ** (global_round // step_every)
    if schedule == "cosine":
        return base * 0.5 * (1.0 + math.cos(math.pi * global_round / global_rounds))
    return base
