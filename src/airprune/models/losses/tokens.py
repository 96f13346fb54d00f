"""Defines the cross-entropy of tokens, of which some may have no target, and perplexity.

Scores are [num_samples, num_classes, num_positions] and targets [num_samples, num_positions]. A target of −100, as PEFT
and transformers have it for padding and prompts, is ignored: the mean is over all other positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airprune.data.dataset import IGNORED
from airprune.models.losses.base import Loss, Metric

if TYPE_CHECKING:
    import torch


def mean(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional as F  # here, since listing losses does not wait for torch

    return F.cross_entropy(outputs, targets, ignore_index=IGNORED)


def perplexity(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the exponential of the mean cross-entropy."""
    return mean(outputs, targets).exp()


TOKENS = Loss(
    name="tokens",
    summary="cross-entropy of tokens, one class per position; targets of −100 are ignored",
    mean=mean,
    targets="tokens",
    metric="perplexity",
)
PERPLEXITY = Metric(name="perplexity", summary="exponential of the mean cross-entropy", mean=perplexity)
