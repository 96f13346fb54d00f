"""Devices that have not been heard from for long count more."""

from __future__ import annotations

from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, Values, per_device
from airprune.methods.outcome import Outcome
from airprune.methods.selection.base import Candidates
from airprune.methods.weighting.base import Array, Weighting, over_their_mean
from airprune.settings.section import NonNegative

LAST = "by-staleness.last_round"


class ByStaleness(Weighting):
    """Weighs devices by the edge rounds since their last upload, or since the start."""

    name = "by-staleness"
    summary = "devices count by the edge rounds since their last upload"
    source = "own"

    power: NonNegative = Field(default=1.0, description="exponent of the number of rounds; 0: all count equally")

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Stores the number of the edge round of every device's last upload, counted from 1; 0 before the first."""
        return (Slot(name=LAST, owner=Owner.RUN, shape=per_device, dtype="<i8"),)

    def weights(self, selected: Candidates) -> Array | float:
        rounds = selected.round_index + 1.0 - selected.memory[LAST][selected.device]
        return over_their_mean(rounds**self.power)

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        last = values[LAST].copy()
        last[outcome.device[outcome.arrived]] = outcome.candidates.round_index + 1
        return {LAST: last}
