"""As probe, with scores that every device averages over its rounds: one minibatch alone ranks noisily."""

from __future__ import annotations

from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, prunable_weights
from airprune.methods.masking.base import WHOLE, Array, DeviceView, SubModel, Values
from airprune.methods.masking.ranking import Ranking, best_weights, scores_of
from airprune.methods.objectives.base import LocalRun, Memory
from airprune.settings.section import Ratio, Text

SCORES = "averaged.scores"


class Averaged(Ranking):
    """A ranking that a device refines from round to round."""

    name = "averaged"
    summary = "as probe, with scores averaged over a device's rounds"
    source = "after Molchanov et al."

    importance: Text = Field(default="taylor", description="taylor is (w · gradient)² of one minibatch per round")
    ema: Ratio = Field(
        default=0.9, description="decay of the exponential moving average; 0: scores of this round alone"
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Stores the scores so far. They start from zero, which scales all scores of a device equally."""
        return (Slot(name=SCORES, owner=Owner.DEVICE, shape=prunable_weights, dtype="<f8"),)

    def choose(self, view: DeviceView) -> SubModel:
        if view.keep >= view.shape.prunable_weights:
            return WHOLE
        mask = best_weights(self, self._scores(view), view)
        return SubModel(sent=mask, held=mask, moves=mask)

    def finish(self, run: LocalRun, memory: Memory) -> Values:
        """Devices that prune nothing do not score."""
        view = run.view
        if view.keep >= view.shape.prunable_weights:
            return {}
        return {SCORES: self._scores(view)}

    def _scores(self, view: DeviceView) -> Array:
        """ema · scores so far + (1 − ema) · this round's."""
        new = scores_of(self, view)
        return self.ema * view.memory[SCORES] + (1.0 - self.ema) * new if self.ema else new
