"""Defines cross-entropy of class scores, and accuracy.

Scores are [num_samples, num_classes] for one class per sample; for one class per position, as of tokens, they are
[num_samples, num_classes, num_positions], and a sample counts by the mean over its positions.
"""

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

    return _per_sample(F.cross_entropy(outputs, targets, reduction="sum"), targets)


def together(outputs: torch.Tensor) -> torch.Tensor:
    """Returns the logits of the mean of the members' probabilities.

    Args:
      outputs: logits.  [num_models, num_samples, num_classes, …]
    """
    return outputs.log_softmax(2).logsumexp(0) - math.log(len(outputs))


def correct(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return _per_sample((outputs.argmax(1) == targets).sum(), targets)


def _per_sample(total: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns a sum over all positions as a sum over samples."""
    return total if targets.dim() == 1 else total / targets[0].numel()


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
