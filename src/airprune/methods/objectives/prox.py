"""FedProx: F(w) + μ/2 ‖w − w_received‖², which holds a device near the model it was given."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from airprune.methods.objectives.base import Array, Memory, Objective
from airprune.settings.section import NonNegative


class Prox(Objective):
    """The loss and a proximal term."""

    name = "prox"
    summary = "the loss and a proximal term to the received model"
    source = "FedProx, as published"
    fully_open: ClassVar = {"mu": 0.0}

    mu: NonNegative = Field(default=0.01, description="weight of the proximal term; 0: plain")

    def adjust(self, gradient: Array, weights: Array, received: Array, memory: Memory) -> None:
        """∇ + μ (w − w_received)."""
        if self.mu:
            gradient += gradient.dtype.type(self.mu) * (weights - received)
