"""Defines losses of numbers: squared, absolute, and Huber.

Outputs [samples, 1] fit targets [samples], which torch by itself would broadcast to [samples, samples].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airprune.models.losses.base import Loss, Metric

if TYPE_CHECKING:
    import torch


def squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional as F

    return F.mse_loss(*_alike(outputs, targets))


def huber(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional as F

    return F.huber_loss(*_alike(outputs, targets))


def absolute(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional as F

    return F.l1_loss(*_alike(outputs, targets))


def total_squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return squared(outputs, targets) * len(targets)


def total_huber(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return huber(outputs, targets) * len(targets)


def total_absolute(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return absolute(outputs, targets).double() * len(targets)


def _alike(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if outputs.numel() != targets.numel():
        raise ValueError(f"outputs of shape {tuple(outputs.shape)} for targets of shape {tuple(targets.shape)}")
    return outputs.reshape(targets.shape), targets


MSE = Loss(name="mse", summary="mean squared error", mean=squared, total=total_squared, targets="values", metric="mae")
HUBER = Loss(
    name="huber",
    summary="squared errors up to 1, then absolute",
    mean=huber,
    total=total_huber,
    targets="values",
    metric="mae",
)
MAE = Metric(name="mae", summary="mean absolute error", mean=absolute, total=total_absolute)
