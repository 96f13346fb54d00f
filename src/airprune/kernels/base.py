"""What a kernel is: minibatch gradients of a flat model, on samples that lie in arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.components import Component
from airprune.losses import CROSS_ENTROPY

Array = np.ndarray
Gradient = Callable[[Array], float]
"""Of the numbers of a minibatch's samples: leaves ∇F(w, ξ) in `model.gradient_array`, returns F(w, ξ)."""


@dataclass(frozen=True, kw_only=True)
class Kernel(Component):
    """One way to compute gradients.

    Attributes:
      unsupported: why it cannot serve this model and these samples; empty if it can.
      build: of (model, x, y, loss=…, device=…) → the gradient; no loss is cross-entropy.
      losses: names of those it computes; empty for any.
      devices: what it computes on.
    """

    unsupported: Callable[[Any, Array, Array], str]
    build: Callable[..., Gradient]
    losses: tuple[str, ...] = (CROSS_ENTROPY,)
    devices: tuple[str, ...] = ("cpu",)
