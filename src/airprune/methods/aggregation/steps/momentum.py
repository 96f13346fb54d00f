"""FedAvgM: v ← β v + (w − combined), w ← w − η v."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, whole_state
from airprune.methods.aggregation.steps.base import Array, Step, Values, where_held
from airprune.settings.section import Positive

VELOCITY = "momentum.velocity"


class Momentum(Step):
    """Server momentum."""

    name = "momentum"
    summary = "server momentum"
    source = "FedAvgM, as published"
    fully_open: ClassVar = {"beta": 0.0, "rate": 1.0}

    beta: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="momentum coefficient; 0: none")
    rate: Positive = Field(default=1.0, description="eta: server learning rate; 1 with beta = 0: replace")

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        return (Slot(name=VELOCITY, owner=Owner.CLOUD, shape=whole_state, dtype="<f8"),)

    def move(self, previous: Array, combined: Array, held: Array | None, own: Values) -> tuple[Array, Values]:
        """As combined + (1 − η) (w − combined) − η β v, so that β = 0 and η = 1 give the combined model to the bit."""
        velocity, back = own[VELOCITY], previous.astype(np.float64) - combined
        moved = combined + ((1.0 - self.rate) * back - self.rate * self.beta * velocity)
        velocity = where_held(held, self.beta * velocity + back, velocity)
        return where_held(held, moved.astype(previous.dtype), previous), own | {VELOCITY: velocity}
