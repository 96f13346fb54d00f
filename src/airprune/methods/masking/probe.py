"""The paper's masks: a device ranks the weights of the model it received and zeroes what does not fit, Eq. (5)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from airprune.components.component import ModelShape
from airprune.methods.masking.base import WHOLE, Charges, DeviceView, Masking, SubModel
from airprune.methods.masking.core.importance import IMPORTANCES, Probe
from airprune.methods.masking.core.masks import choose_mask, mask_of_moves
from airprune.methods.masking.core.structured import choose_units, structured_count, unit_keep_for
from airprune.settings.section import Section, Text

Array = np.ndarray


class RankingOptions(Section):
    """How weights are ranked."""

    importance: Text = Field(default="update", description="update is Eq. (2), on one probe minibatch")
    scope: Literal["global", "layer"] = Field(default="global", description="rank all weights, or each layer's")
    structure: Literal["weights", "neurons"] = Field(default="weights", description="neurons is Eq. (3)")
    count_probe: bool = Field(default=False, description="add the probe minibatch to the compute time")
    count_mask_bits: bool = Field(default=False, description="add one bit per prunable weight to the upload")

    @field_validator("importance")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in IMPORTANCES:
            raise IMPORTANCES.unknown(name, f"{cls.owner}.importance")
        return name


def whole_weights(options: RankingOptions, budget: Array, shape: ModelShape) -> Array:
    """The budget itself, or the largest count that Eq. (3) makes of whole neurons within it."""
    if options.structure != "neurons":
        return budget
    layers = shape.layers
    whole = {k: structured_count(layers, unit_keep_for(layers, k)) for k in np.unique(budget).tolist() if k > 0}
    return np.array([whole.get(k, 0) for k in budget.tolist()])


def charges(options: RankingOptions, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
    mask_bits = shape.prunable_weights if options.count_mask_bits else 0
    return Charges(uplink_bits=float(mask_bits), probe=options.count_probe)


def whole_units(options: RankingOptions) -> bool:
    return options.structure == "neurons"


def by_gradient(options: RankingOptions) -> bool:
    """Some importances see the received weights alone, or nothing."""
    importance = IMPORTANCES[options.importance]
    return importance.needs_gradient or importance.needs_loss


def scores_of(options: RankingOptions, view: DeviceView) -> Array:
    """Importance of every prunable weight of the dense received model.

    Differs from the literal Eq. (2), see `airprune.methods.masking.core.importance`. The probe minibatch is the round's
    first, so pruning changes nothing in which samples are visited when.
    """
    importance = IMPORTANCES[options.importance]
    probe = Probe(
        weights=view.weights,
        gradient=view.dense_gradient if importance.needs_gradient else None,
        learning_rate=view.learning_rate,
        loss=view.loss if importance.needs_loss else None,
        rng=view.rng if importance.needs_rng else None,
    )
    return importance.score(probe)


def by_moves(options: RankingOptions) -> bool:
    """Whether exactly the weights stay that a step on the probe minibatch moves most, as the paper has it."""
    return (options.importance, options.scope, options.structure) == ("update", "global", "weights")


def ranked_mask(options: RankingOptions, view: DeviceView) -> Array | None:
    """m of Eq. (5): exactly `keep` weights, or None for all of them."""
    if view.keep >= view.shape.prunable_weights:
        return None
    if by_moves(options):
        received, rate = view.received_weights, view.learning_rate
        mask = mask_of_moves(received, view.passing_gradient(), rate, keep=view.keep, layers=view.shape.layers)
        if mask is not None:
            return mask
    return best_weights(options, scores_of(options, view), view)


def best_weights(options: RankingOptions, scores: Array, view: DeviceView) -> Array:
    """The `keep` weights with the highest scores, or the units that fit into as many."""
    layers, ties = view.shape.layers, np.abs(view.weights)
    if options.structure == "neurons":
        return choose_units(scores, keep=view.keep, layers=layers, tie_break=ties).mask
    return choose_mask(scores, keep=view.keep, layers=layers, scope=options.scope, tie_break=ties)


def choose(options: RankingOptions, view: DeviceView) -> SubModel:
    mask = ranked_mask(options, view)
    return WHOLE if mask is None else SubModel(sent=mask, held=mask, moves=mask)


MASKING = Masking(
    name="probe",
    summary="the paper's: each device ranks the received weights and zeroes what does not fit",
    source="as published, corrected",
    Options=RankingOptions,
    choose=choose,
    weights=whole_weights,
    charges=charges,
    whole_units=whole_units,
    by_data=by_gradient,
)
