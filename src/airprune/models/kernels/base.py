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


@dataclass(frozen=True, eq=False)
class Features:
    """Inputs of the lowest trained layer, of samples that a device visits more than once in a round.

    Attributes:
      samples: their numbers, ascending.
      values: the kernel's own.
    """

    samples: Array
    values: Any

    def places(self, batch: Array) -> Array:
        """Returns the place of each of these samples among `samples`; -1 for those that are not."""
        found = np.searchsorted(self.samples, batch)
        found[found == len(self.samples)] = 0
        return np.where(self.samples[found] == batch, found, -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedPart:
    """Names the tensors that a device trains in a round. Gradients of the rest are zero, and not computed.

    Attributes:
      tensors: of each tensor in `model.parts`, whether it is trained. Nothing goes back below the lowest.
      first_trained: number of the layer below which everything is frozen, buffers included; 0: nothing is.
      last_trained: number of the layer above which everything is frozen, likewise; None: nothing is.
      features: kept inputs of that layer; None if they are computed in every step.
    """

    tensors: tuple[bool, ...]
    first_trained: int = 0
    features: Features | None = None
    last_trained: int | None = None

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for parts whose gradients can be computed together."""
        return self.tensors, self.first_trained, self.last_trained, self.features is None


def visited_again(batches: Sequence[Array]) -> Array | None:
    """Returns the samples of a round, ascending, if there are fewer than visits: then features of them pay."""
    visits = np.concatenate(batches)
    samples = np.unique(visits)
    return samples if len(samples) < len(visits) else None


class Gradient(Protocol):
    """Gradients of one model on samples that lie in arrays."""

    def __call__(self, batch: Array) -> float:
        """Leaves ∇F(w, ξ) of a minibatch's samples in `model.gradient_array`; returns F(w, ξ)."""

    def of_part(self, batch: Array, part: TrainedPart) -> float:
        """Computes the same for a part of the model, to the bits of the whole; the rest of the gradient is zero."""

    def keep_features(self, part: TrainedPart, samples: Array, most_bytes: int) -> TrainedPart:
        """Returns the part with features of these samples, as many as fit; as it is if there can be none.

        Valid while nothing below the part's first layer changes.
        """


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

    def gradients(
        self, first: int, batches: Sequence[Array], parts: Sequence[TrainedPart] | None = None
    ) -> list[float] | None:
        """Computes like a `Gradient` for so many rows from `first`, on minibatches of one size; None: not this size.

        Args:
          parts: of each row, all of one kind; None if all train everything.
        """

    def alone(self, row: int, batch: Array, part: TrainedPart | None = None) -> float:
        """The `Gradient` of one row."""

    def keep_features(self, row: int, part: TrainedPart, samples: Array, most_bytes: int) -> TrainedPart:
        """Keeps features of one row like a `Gradient`."""

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
      takes_modules: whether it computes by the torch module itself, and its gradient has a `transform` of samples: for
        training loops and augmentations.
    """

    unsupported: Callable[[Any, Array, Array], str]
    build: Callable[..., Gradient]
    losses: tuple[str, ...] = (CROSS_ENTROPY,)
    devices: tuple[str, ...] = ("cpu",)
    teaching: Callable[[Any, Array, Array], Teaching] | None = None
    stack: Callable[..., Stacked | None] | None = None
    takes_modules: bool = False
