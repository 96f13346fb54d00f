"""One mask for all devices: they report their scores every few rounds, and the cloud ranks the sums.

The ranking is kept between reports. Each round takes from its top as many weights as the tightest device can train, so
the mask of a round with less time lies inside that of one with more, and no device misses the deadline.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, ReportKind, Slot, prunable_weights
from airprune.methods.masking.base import FREE, Array, Charges, DeviceView, RoundView, SubModel, Values
from airprune.methods.masking.core.masks import choose_mask
from airprune.methods.masking.core.structured import choose_units
from airprune.methods.masking.ranking import Ranking, scores_of
from airprune.methods.outcome import Outcome
from airprune.settings.section import Count

RANKING = "shared.ranking"


class Shared(Ranking):
    """One ranking for all."""

    name = "shared"
    summary = "one pruning mask for all devices, from their summed scores, renewed every few rounds"

    every: Count = Field(
        default=5, description="edge rounds between two reports of scores, and so between two rankings"
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The scores that rank the weights; all zero until the first report: then the size of the weights decides."""
        return (Slot(name=RANKING, owner=Owner.RUN, shape=prunable_weights, dtype="<f8"),)

    def num_kept(self, budget: Array, shape: ModelShape) -> Array:
        """The tightest device decides for all."""
        return np.full_like(budget, super().num_kept(budget, shape).min())

    def charges(self, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
        """One exact value per prunable weight and a minibatch on the whole model when scores are reported.

        The mask itself comes from the cloud and costs no uplink.
        """
        if not self._is_due(round_index):
            return FREE
        return Charges(always_bits=value_bits * shape.prunable_weights, probe=self.count_probe)

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        """Returns the top of the ranking, as many weights as all devices can train."""
        keep, layers = int(view.keep.min()), view.shape.layers
        if keep >= layers.num_weights:
            return None, values
        scores, size = values[RANKING], np.abs(view.model[view.shape.prunable])
        if self.structure == "neurons":
            return choose_units(scores, keep=keep, layers=layers, tie_break=size).mask, values
        return choose_mask(scores, keep=keep, layers=layers, scope=self.scope, tie_break=size), values

    def choose(self, view: DeviceView) -> SubModel:
        """The common mask, and the device's scores where they are due."""
        due = self._is_due(view.round_index)
        report = {RANKING: scores_of(self, view).astype(np.float64)} if due else {}
        return SubModel(sent=view.shared, held=view.shared, moves=view.shared, report=report)

    def reported(self, shape: ModelShape) -> dict[str, ReportKind]:
        return {RANKING: ("<f8", prunable_weights(shape))}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        """New scores replace the old ones."""
        sums = outcome.sums
        return {RANKING: sums[RANKING]} if RANKING in sums else {}

    def _is_due(self, round_index: int) -> bool:
        """Returns whether devices send scores in this round: the last before a new ranking."""
        return (round_index + 1) % self.every == 0
