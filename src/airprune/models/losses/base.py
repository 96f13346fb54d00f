"""What a loss is, and what a metric is: functions of a minibatch's outputs and targets, both torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airprune.components.component import Listed

if TYPE_CHECKING:
    from torch import Tensor

Mean = Callable[["Tensor", "Tensor"], "Tensor"]
Targets = Literal["classes", "values", "any"]


@dataclass(frozen=True, kw_only=True)
class Metric(Listed):
    """What a model is judged by on the test samples.

    Attributes:
      mean: of (outputs, targets) → a number or a tensor of one. It gets all test samples at once, so it need not be a
        mean over samples: an F1 score is as good.
      total: of a metric that is such a mean, the sum over some samples, so that they may be evaluated in parts.
    """

    mean: Mean
    total: Mean | None = None

    def sum(self, outputs: Tensor, targets: Tensor) -> float:
        """Σ over the samples; whole where the metric counts. Without a `total`, the value times their number."""
        if self.total is not None:
            return self.total(outputs, targets).item()
        return float(self.mean(outputs, targets)) * len(targets)


@dataclass(frozen=True, kw_only=True)
class Loss(Listed):
    """F of Eq. (7).

    Attributes:
      mean: of (outputs, targets) of a minibatch → the mean over its samples; torch follows its gradient. For
        `test_loss` it gets all test samples at once.
      total: the sum in place of the mean, so that test samples may be evaluated in parts.
      targets: what samples have beside their features: one class each, numbers of any shape, or either.
      metric: the name of what models are judged by unless somebody says otherwise; empty for the loss alone.
      together: of the outputs of several models → what they predict together; by default their mean.
        [num_models, num_samples, …] → [num_samples, …]
    """

    mean: Mean
    total: Mean | None = None
    targets: Targets = "any"
    metric: str = ""
    together: Callable[[Tensor], Tensor] | None = None

    def sum(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Σ over the samples. Without a `total`, the mean times their number."""
        if self.total is not None:
            return self.total(outputs, targets)
        return self.mean(outputs, targets) * len(targets)

    def combined(self, outputs: Tensor) -> Tensor:
        """What models predict together; a single one's outputs stay as they are."""
        if len(outputs) == 1:
            return outputs[0]
        return outputs.mean(0) if self.together is None else self.together(outputs)
