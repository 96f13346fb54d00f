"""Devices whose last training loss was large count more."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, Values, per_device
from airprune.methods.outcome import Outcome
from airprune.methods.selection.base import Candidates
from airprune.methods.weighting.base import Array, Weighting, over_their_mean
from airprune.settings.section import NonNegative

LOSS = "by-loss.loss"
# Of the largest loss: what a device counts at least, since weights must be positive.
_LEAST = 1e-3


class ByLoss(Weighting):
    """Weighs devices by the mean training loss of their last upload; a device without one has the largest."""

    name = "by-loss"
    summary = "devices count by the training loss of their last upload"
    source = "own"

    power: NonNegative = Field(default=1.0, description="exponent of the loss; 0: all count equally")

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Stores the last loss of every device; NaN before its first upload."""
        return (Slot(name=LOSS, owner=Owner.RUN, shape=per_device, dtype="<f8", start=np.nan),)

    def weights(self, selected: Candidates) -> Array | float:
        loss = selected.memory[LOSS][selected.device]
        if np.isnan(loss).all():
            return 1.0
        largest = np.nanmax(loss)
        loss = np.clip(np.where(np.isnan(loss), largest, loss), _LEAST * largest, None)
        return over_their_mean(loss**self.power) if largest > 0.0 else 1.0

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        known = outcome.arrived & np.isfinite(outcome.loss)
        loss = values[LOSS].copy()
        loss[outcome.device[known]] = outcome.loss[known]
        return {LOSS: loss}
