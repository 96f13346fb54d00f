"""Defines losses and metrics: functions of a minibatch's outputs and targets, both torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airprune.components.component import Listed

if TYPE_CHECKING:
    from torch import Tensor

Mean = Callable[["Tensor", "Tensor"], "Tensor"]
Targets = Literal["classes", "tokens", "values", "any"]


@dataclass(frozen=True, kw_only=True)
class Metric(Listed):
    """A metric by which models are evaluated on the test samples.

    Attributes:
      mean: (outputs, targets) → a number or a tensor of one. It gets all test samples at once, so it need not be a
        mean over samples: an F1 score works too. As one of `evaluation.metrics` it may give a vector, e.g. per class.
      total: for a metric that is a mean, the sum over some samples, so that they may be evaluated in parts.
      is_vector: True if it gives several numbers, for `evaluation.metrics` alone.
    """

    mean: Mean
    total: Mean | None = None
    is_vector: bool = False

    def sum(self, outputs: Tensor, targets: Tensor) -> float:
        """Returns Σ over the samples, whole for counts. Without a `total`, the value times their number."""
        if self.total is not None:
            return self.total(outputs, targets).item()
        return float(self.mean(outputs, targets)) * len(targets)


@dataclass(frozen=True, kw_only=True)
class Loss(Listed):
    """The loss F of Eq. (7).

    Attributes:
      mean: (outputs, targets) of a minibatch → the mean over its samples, differentiable by torch. For
        `test_loss` it gets all test samples at once.
      total: the sum in place of the mean, so that test samples may be evaluated in parts.
      targets: kind of the targets: one class per sample, one per position of a sample, numbers of any shape, or any.
      metric: name of the default metric; empty for the loss alone.
      together: outputs of several models → their common prediction; by default the mean.
        [num_models, num_samples, …] → [num_samples, …]
    """

    mean: Mean
    total: Mean | None = None
    targets: Targets = "any"
    metric: str = ""
    together: Callable[[Tensor], Tensor] | None = None

    def sum(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns Σ over the samples. Without a `total`, the mean times their number."""
        if self.total is not None:
            return self.total(outputs, targets)
        return self.mean(outputs, targets) * len(targets)

    def combined(self, outputs: Tensor) -> Tensor:
        """Returns the common prediction of several models; a single one's outputs stay as they are."""
        if len(outputs) == 1:
            return outputs[0]
        return outputs.mean(0) if self.together is None else self.together(outputs)
