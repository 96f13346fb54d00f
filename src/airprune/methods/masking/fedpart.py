"""FedPart: some rounds of the whole model, then one layer at a time is trained and sent for some rounds; in cycles.

The layers that take turns, from the first to the last, are the prunable ones: with model.prunable = ["*"] all of them,
convolutions too. What is never pruned, biases among it, is trained in every round. Turns do not ask whether a layer
fits: where it does not, the round misses the deadline.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.methods.masking.base import Array, RoundView, Values
from airprune.methods.masking.fedpt import FedPt
from airprune.settings.section import MAX_COUNT, Count


class FedPart(FedPt):
    """Training of one layer at a time."""

    name = "fedpart"
    summary = "partial network updates: after a warm-up, one layer at a time; ignores the deadline"
    source = "after FedPart (Wang et al.)"
    fully_open: ClassVar = {"warm_up": MAX_COUNT}
    adapts: ClassVar[bool] = False
    whole_units: ClassVar[bool] = True

    warm_up: Annotated[int, Field(ge=0, le=MAX_COUNT)] = Field(
        default=5, description="edge rounds in which the whole model is trained, before the first turn of every cycle"
    )
    rounds_each: Count = Field(default=2, description="edge rounds for which a layer is trained")

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        """The layer whose turn it is."""
        layers = view.shape.layers
        done = view.round_index % (self.warm_up + self.rounds_each * len(layers)) - self.warm_up
        if done < 0:
            return None, values
        mask = np.zeros(layers.num_weights, dtype=bool)
        mask[layers.layers[done // self.rounds_each].span] = True
        return mask, values
