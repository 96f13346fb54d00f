"""Devices with more samples count more."""

from __future__ import annotations

from pydantic import Field

from airprune.methods.selection.base import Candidates
from airprune.methods.weighting.base import Array, Weighting, over_their_mean
from airprune.settings.section import NonNegative


class ByData(Weighting):
    """Weighs devices by their numbers of samples."""

    name = "by-data"
    summary = "devices count by their numbers of samples"
    source = "own"

    power: NonNegative = Field(default=1.0, description="exponent of the number of samples; 0: all count equally")

    def weights(self, selected: Candidates) -> Array | float:
        return over_their_mean(selected.num_samples**self.power)
