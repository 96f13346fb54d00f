"""FedProx: F(w) + μ/2 ‖w − w_received‖², which holds a device near the model it was given."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.methods.objectives.base import Memory, Objective
from airprune.settings.section import NonNegative, Section

Array = np.ndarray


class ProxOptions(Section):
    """How strong the pull is."""

    mu: NonNegative = Field(default=0.01, description="weight of the pull to the received model; 0: plain")


def adjust(options: ProxOptions, gradient: Array, weights: Array, received: Array, memory: Memory) -> None:
    """∇ + μ (w − w_received)."""
    if options.mu:
        gradient += gradient.dtype.type(options.mu) * (weights - received)


OBJECTIVE = Objective(
    name="prox",
    summary="the loss and a pull to the received model",
    source="FedProx, as published",
    Options=ProxOptions,
    adjust=adjust,
    fully_open={"mu": 0.0},
)
