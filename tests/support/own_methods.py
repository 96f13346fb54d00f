"""Components of a user's own, of several kinds; the tests run it as a script and give it with --import."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

import airprune as ap
from airprune.components.component import Owner, Slot, prunable_weights
from airprune.methods import Recipe
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.compression.base import Compression, Message
from airprune.methods.masking.base import Masking, SubModel
from airprune.methods.masking.core import Importance
from airprune.methods.masking.core.masks import choose_mask
from airprune.methods.selection.base import Selection
from airprune.settings.section import Ratio


class Fading(Masking):
    """A device ranks by what it remembers."""

    name = "fading"
    summary = "each device ranks by the gradients it remembers"

    decay: Ratio = Field(default=0.5, description="of the remembered scores, per round")
    label: str = "x"

    def slots(self, shape):
        return (Slot(name="fading.scores", owner=Owner.DEVICE, shape=prunable_weights),)

    def scores(self, view):
        return self.decay * view.memory["fading.scores"] + np.abs(view.dense_gradient)

    def choose(self, view):
        if view.keep >= view.shape.prunable_weights:
            return SubModel()
        layers, ties = view.shape.layers, np.abs(view.weights)
        mask = choose_mask(self.scores(view), keep=view.keep, layers=layers, tie_break=ties)
        return SubModel(sent=mask, held=mask, moves=mask)

    def finish(self, run, memory):
        return {"fading.scores": self.scores(run.view).astype(np.float32)}


def saliency(probe):
    return np.abs(probe.weights * probe.gradient)


@ap.register
class Shrunk(Compression):
    """Sends less than was learnt."""

    name = "shrunk"
    summary = "a share of the update"
    fully_open: ClassVar = {"factor": 1.0}

    factor: Ratio = 1.0

    def line(self, wire):
        return wire.value_bits, 0.0

    def message_bits(self, wire, num_weights):
        return wire.value_bits * num_weights

    def encode(self, wire, values, starts, rng):
        return Message((self.factor * values).tobytes(), self.message_bits(wire, values.size), values.size)

    def decode(self, wire, message, starts):
        return np.frombuffer(message.payload, "<f8").copy()


class OwnSum(AGGREGATIONS["masked-mean"].Sum):
    """Travels between processes as what it is."""


@ap.register
class OwnMean(AGGREGATIONS["masked-mean"]):
    """The paper's average, with a sum of its own."""

    name = "own-mean"
    Sum = OwnSum


ap.register(Fading)
ap.register(Importance(name="saliency", summary="weight times gradient", score=saliency, needs_gradient=True))


@ap.register
class Even(Selection):
    name = "even"
    summary = "devices of even number"

    def before(self, candidates):
        return candidates.device % 2 == 0


ap.register(
    Recipe(
        name="own-recipe",
        summary="all of it",
        settings={
            "masking.name": "fading",
            "masking.fading.decay": 0.75,
            "compression.name": "shrunk",
            "compression.shrunk.factor": 0.5,
            "aggregation.edge": "own-mean",
        },
    )
)

if __name__ == "__main__":
    import sys

    scenario, engine, out = sys.argv[1:]
    chosen = ap.Scenario.load(scenario).with_values({"method": "own-recipe", "engine.name": engine})
    for _ in ap.run(chosen.with_("engine.workers", 1), out=out):
        pass
