"""Mixes losses: a weighted sum, minimised as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airprune.models.losses.base import Loss

if TYPE_CHECKING:
    from torch import Tensor


def mixed_loss(name: str, terms: Sequence[tuple[float, Loss]]) -> Loss:
    """Returns Σ weight · loss. The first loss says what targets are, how models are combined, and the metric."""
    first = terms[0][1]

    def mean(outputs: Tensor, targets: Tensor) -> Tensor:
        return _sum([weight * loss.mean(outputs, targets) for weight, loss in terms])

    def total(outputs: Tensor, targets: Tensor) -> Tensor:
        return _sum([weight * loss.sum(outputs, targets) for weight, loss in terms])

    adds_up = all(loss.total is not None for _, loss in terms)
    return Loss(
        name=name,
        summary="a weighted sum of losses",
        mean=mean,
        total=total if adds_up else None,
        targets=first.targets,
        metric=first.metric,
        together=first.together,
    )


def _sum(values: Sequence[Tensor]) -> Tensor:
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result
