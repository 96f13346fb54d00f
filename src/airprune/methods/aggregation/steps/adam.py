"""FedAdam (Reddi et al., Algorithm 2): Δ = combined − w, m ← β₁ m + (1 − β₁) Δ, v ← β₂ v + (1 − β₂) Δ²,
w ← w + η m / (√v + τ), without a correction of the bias.

The source asks for v₀ ≥ τ². With v₀ = 0 the first step would move every weight with |Δ| ≫ τ by
(1 − β₁) / √(1 − β₂) = 1 times η, however small its Δ. β and τ are the source's; it tunes η, here 0.03: on the
league's scene, 0.1 diverges at some learning rates of the devices, and six rounds are too few for 0.01.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, whole_state
from airprune.methods.aggregation.steps.base import Array, Step, Values, where_held
from airprune.settings.section import NonNegative, Positive

FIRST, SECOND = "adam.first", "adam.second"
Share = Annotated[float, Field(ge=0, lt=1)]


class Adam(Step):
    """Adam as the server optimiser."""

    name = "adam"
    summary = "Adam on the server's update"
    source = "FedAdam, as published"

    rate: Positive = Field(default=0.03, description="eta: server learning rate")
    beta_1: Share = Field(default=0.9, description="decay of the first moment")
    beta_2: Share = Field(default=0.99, description="decay of the second moment")
    tau: Positive = Field(default=1e-3, description="tau: added to the root of the second moment")
    start: NonNegative | None = Field(default=None, description="initial value of the second moment; none: tau²")

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        start = self.tau**2 if self.start is None else self.start
        return (
            Slot(name=FIRST, owner=Owner.CLOUD, shape=whole_state, dtype="<f8"),
            Slot(name=SECOND, owner=Owner.CLOUD, shape=whole_state, dtype="<f8", start=start),
        )

    def move(self, previous: Array, combined: Array, held: Array | None, own: Values) -> tuple[Array, Values]:
        before = previous.astype(np.float64)
        change = combined.astype(np.float64) - before
        first = self.beta_1 * own[FIRST] + (1.0 - self.beta_1) * change
        second = self.beta_2 * own[SECOND] + (1.0 - self.beta_2) * change**2
        moved = (before + self.rate * first / (np.sqrt(second) + self.tau)).astype(previous.dtype)
        kept = {FIRST: where_held(held, first, own[FIRST]), SECOND: where_held(held, second, own[SECOND])}
        return where_held(held, moved, previous), own | kept
