"""What a kernel is: minibatch gradients of a flat model, on samples that lie in arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.components import Component

Array = np.ndarray
Gradient = Callable[[Array], float]
"""Of the numbers of a minibatch's samples: leaves ∇F(w, ξ) in `model.gradient_array`, returns F(w, ξ)."""


@dataclass(frozen=True, kw_only=True)
class Kernel(Component):
    """One way to compute gradients.

    Attributes:
      unsupported: why it cannot serve this model and these samples; empty if it can.
      build: of (model, x, y) → the gradient.
    """

    unsupported: Callable[[Any, Array, Array], str]
    build: Callable[[Any, Array, Array], Gradient]
