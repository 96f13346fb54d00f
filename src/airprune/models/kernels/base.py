"""Kernels: minibatch gradients of a flat model, on samples that lie in arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from airprune.components.component import Listed
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY

Array = np.ndarray
Gradient = Callable[[Array], float]
"""Called with the numbers of a minibatch's samples: leaves ∇F(w, ξ) in `model.gradient_array`, returns F(w, ξ)."""


class Teaching(Protocol):
    """Gradients of two kinds: from labels, with what was predicted, and from predictions."""

    def teach(self, batch: Array) -> tuple[float, Any]:
        """Computes like a `Gradient`; returns F and the probabilities of all classes."""

    def learn(self, batch: Array, probabilities: Any) -> float:
        """∇ of the cross-entropy to these probabilities, in `model.gradient_array`; returns that cross-entropy."""


class Stacked(Protocol):
    """Models of one kind as rows of a stack, whose gradients are computed together, to the bits of each alone."""

    @property
    def model(self) -> LocalModel: ...

    @property
    def rows(self) -> Sequence[LocalModel]: ...

    def descend(self, row: int, learning_rate: float) -> None:
        """w ← w − η g of one row in float32, by the native library."""

    def gradients(self, first: int, batches: Sequence[Array]) -> list[float] | None:
        """Computes like a `Gradient` for so many rows from `first`, on minibatches of one size; None: not this size."""

    def alone(self, row: int, batch: Array) -> float:
        """The `Gradient` of one row."""

    def value(self, row: int, batch: Array) -> float:
        """F of one row."""


@dataclass(frozen=True, kw_only=True)
class Kernel(Listed):
    """One way to compute gradients.

    Attributes:
      unsupported: why it cannot serve this model and these samples; empty if it can.
      build: of (model, x, y, loss=…, device=…) → the gradient; no loss is cross-entropy.
      losses: names of those it computes; empty for any.
      devices: what it computes on.
      teaching: of (model, x, y) → the same for distillation; None if it cannot do that.
      stack: of (model, x, y, loss=…, batch_size=…, num_rows=…) → at most so many models at once, or None if this one
        cannot be stacked or that would not pay. It serves `build`'s gradients faster, never other ones.
    """

    unsupported: Callable[[Any, Array, Array], str]
    build: Callable[..., Gradient]
    losses: tuple[str, ...] = (CROSS_ENTROPY,)
    devices: tuple[str, ...] = ("cpu",)
    teaching: Callable[[Any, Array, Array], Teaching] | None = None
    stack: Callable[..., Stacked | None] | None = None
