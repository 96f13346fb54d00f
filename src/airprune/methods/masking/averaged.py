"""As probe, with scores that every device averages over its rounds: one minibatch alone ranks noisily."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, prunable_weights
from airprune.methods.masking.base import WHOLE, DeviceView, Masking, SubModel, Values
from airprune.methods.masking.probe import RankingOptions, best_weights, charges, scores_of, whole_units, whole_weights
from airprune.methods.objectives.base import LocalRun
from airprune.settings.section import Ratio, Text

Array = np.ndarray
SCORES = "averaged.scores"


class AveragedOptions(RankingOptions):
    """How weights are ranked, and how long scores count."""

    importance: Text = Field(default="taylor", description="taylor is (w · gradient)² of one minibatch per round")
    ema: Ratio = Field(default=0.9, description="weight of the scores so far; 0: those of this round alone")


def slots(options: AveragedOptions, shape: ModelShape) -> tuple[Slot, ...]:
    """Scores so far. They start from zero, which scales all of a device's scores alike and so never reorders them."""
    return (Slot(name=SCORES, owner=Owner.DEVICE, shape=prunable_weights, dtype="<f8"),)


def averaged(options: AveragedOptions, view: DeviceView) -> Array:
    """ema · scores so far + (1 − ema) · this round's."""
    new = scores_of(options, view)
    return options.ema * view.memory[SCORES] + (1.0 - options.ema) * new if options.ema else new


def choose(options: AveragedOptions, view: DeviceView) -> SubModel:
    if view.keep >= view.shape.prunable_weights:
        return WHOLE
    mask = best_weights(options, averaged(options, view), view)
    return SubModel(sent=mask, held=mask, moves=mask)


def finish(options: AveragedOptions, view: DeviceView, run: LocalRun) -> Values:
    """Devices that prune nothing do not score."""
    if view.keep >= view.shape.prunable_weights:
        return {}
    return {SCORES: averaged(options, view)}


MASKING = Masking(
    name="averaged",
    summary="as probe, with scores averaged over a device's rounds",
    source="after Molchanov et al.",
    Options=AveragedOptions,
    slots=slots,
    choose=choose,
    finish=finish,
    weights=whole_weights,
    charges=charges,
    whole_units=whole_units,
)
