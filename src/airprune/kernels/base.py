"""What a kernel is: minibatch gradients of a flat model, on samples that lie in arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from airprune.components import Component
from airprune.losses import CROSS_ENTROPY

Array = np.ndarray
Gradient = Callable[[Array], float]
"""Of the numbers of a minibatch's samples: leaves ∇F(w, ξ) in `model.gradient_array`, returns F(w, ξ)."""


class Teaching(Protocol):
    """Gradients of two kinds: from labels, with what was predicted, and from predictions."""

    def teach(self, batch: Array) -> tuple[float, Any]:
        """As a `Gradient`; returns F and the probabilities of all classes."""

    def learn(self, batch: Array, probabilities: Any) -> float:
        """∇ of the cross-entropy to these probabilities, in `model.gradient_array`; returns that cross-entropy."""


@dataclass(frozen=True, kw_only=True)
class Kernel(Component):
    """One way to compute gradients.

    Attributes:
      unsupported: why it cannot serve this model and these samples; empty if it can.
      build: of (model, x, y, loss=…, device=…) → the gradient; no loss is cross-entropy.
      losses: names of those it computes; empty for any.
      devices: what it computes on.
      teaching: of (model, x, y) → the same for distillation; None if it cannot do that.
    """

    unsupported: Callable[[Any, Array, Array], str]
    build: Callable[..., Gradient]
    losses: tuple[str, ...] = (CROSS_ENTROPY,)
    devices: tuple[str, ...] = ("cpu",)
    teaching: Callable[[Any, Array, Array], Teaching] | None = None
