"""Estimates of Theorem 1's constants, measured by a device while it trains.

By torch: numpy adds in another order, and would change the last digits of what is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from airprune.rounds.local import Device

Array = np.ndarray


def squared_norm(gradient: Array) -> float:
    return float(torch.from_numpy(gradient).square().sum())


def full_gradient(device: Device, samples: Array) -> torch.Tensor:
    """∇F(w) over all of the device's samples."""
    gradient, size = torch.from_numpy(device.model.gradient_array), device.settings.batch_size
    total = torch.zeros_like(gradient)
    for start in range(0, len(samples), size):
        batch = samples[start : start + size]
        device.gradient(batch)
        total.add_(gradient, alpha=len(batch) / len(samples))
    return total


def noise_and_smoothness(device: Device, samples: Array, received: Array, before: torch.Tensor) -> tuple[float, float]:
    """Returns (σ̂² on one minibatch at the received model, L between it and the trained model)."""
    model = device.model
    state, gradient = torch.from_numpy(model.state_array), torch.from_numpy(model.gradient_array)
    trained = state.clone()
    after = full_gradient(device, samples)
    model.load(received)
    moved = (trained - state)[: model.num_parameters].norm()
    device.gradient(samples[: device.settings.batch_size])
    noise_sq = float((gradient - before).square().sum())
    state.copy_(trained)
    return noise_sq, float((after - before).norm() / moved) if moved > 0 else 0.0
