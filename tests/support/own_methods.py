"""Components of a user's own, of several kinds; the tests run it as a script and give it with --import."""

from __future__ import annotations

import dataclasses

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
from airprune.settings.section import Ratio, Section


class FadingOptions(Section):
    """How long a device remembers."""

    decay: Ratio = Field(default=0.5, description="of the remembered scores, per round")
    label: str = "x"


def slots(options, shape):
    return (Slot(name="fading.scores", owner=Owner.DEVICE, shape=prunable_weights),)


def scores(options, view):
    return options.decay * view.memory["fading.scores"] + np.abs(view.dense_gradient)


def choose(options, view):
    if view.keep >= view.shape.prunable_weights:
        return SubModel()
    mask = choose_mask(scores(options, view), keep=view.keep, layers=view.shape.layers, tie_break=np.abs(view.weights))
    return SubModel(sent=mask, held=mask, moves=mask)


def finish(options, view, run):
    return {"fading.scores": scores(options, view).astype(np.float32)}


def saliency(probe):
    return np.abs(probe.weights * probe.gradient)


class ShrunkOptions(Section):
    factor: Ratio = 1.0


def bits(options, wire, num_weights):
    return wire.value_bits * num_weights


def encode(options, wire, values, starts, rng):
    return Message((options.factor * values).tobytes(), bits(options, wire, values.size), values.size)


def decode(options, wire, message, starts):
    return np.frombuffer(message.payload, "<f8").copy()


class OwnSum(AGGREGATIONS["masked-mean"].Sum):
    """Travels between processes as what it is."""


ap.register(
    Masking(
        name="fading",
        summary="each device ranks by the gradients it remembers",
        Options=FadingOptions,
        slots=slots,
        choose=choose,
        finish=finish,
    )
)
ap.register(Importance(name="saliency", summary="weight times gradient", score=saliency, needs_gradient=True))
ap.register(
    Compression(
        name="shrunk",
        summary="a share of the update",
        Options=ShrunkOptions,
        line=lambda options, wire: (wire.value_bits, 0.0),
        bits=bits,
        encode=encode,
        decode=decode,
        exact=lambda options, wire: False,
        fully_open={"factor": 1.0},
    )
)


class Even(Selection):
    name = "even"
    summary = "devices of even number"

    def before(self, candidates):
        return candidates.device % 2 == 0


ap.register(Even)
ap.register(dataclasses.replace(AGGREGATIONS["masked-mean"], name="own-mean", Sum=OwnSum))
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
