"""Defines cross-entropy of class scores, and accuracy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from airprune.models.losses.base import Loss, Metric

if TYPE_CHECKING:
    import torch


def mean(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional as F  # here, since listing losses does not wait for torch

    return F.cross_entropy(outputs, targets)


def total(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional as F

    return F.cross_entropy(outputs, targets, reduction="sum")


def together(outputs: torch.Tensor) -> torch.Tensor:
    """Returns the logits of the mean of the members' probabilities.

    Args:
      outputs: logits.  [num_models, num_samples, num_classes]
    """
    return outputs.log_softmax(-1).logsumexp(0) - math.log(len(outputs))


def correct(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == targets).sum()


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return correct(outputs, targets) / len(targets)


CROSS_ENTROPY = Loss(
    name="cross-entropy",
    summary="cross-entropy of class scores and one class per sample",
    mean=mean,
    total=total,
    targets="classes",
    metric="accuracy",
    together=together,
)
ACCURACY = Metric(
    name="accuracy", summary="share of samples that are classified correctly", mean=accuracy, total=correct
)
