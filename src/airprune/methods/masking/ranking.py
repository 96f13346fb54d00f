"""Shared by maskings that rank weights by an importance: options, scores and the best weights that fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from airprune.components.component import ModelShape
from airprune.methods.masking.base import FREE, Array, Charges, DeviceView, Masking, own_mask
from airprune.methods.masking.core.importance import IMPORTANCES, Probe
from airprune.methods.masking.core.masks import choose_mask, mask_of_moves
from airprune.methods.masking.core.structured import choose_units, structured_count, unit_keep_for
from airprune.settings.section import Text


class Ranking(Masking):
    """A masking that ranks weights."""

    importance: Text = Field(default="update", description="update is Eq. (2), on one probe minibatch")
    scope: Literal["global", "layer"] = Field(default="global", description="rank all weights, or each layer's")
    structure: Literal["weights", "neurons"] = Field(default="weights", description="neurons is Eq. (3)")
    count_probe: bool = Field(default=False, description="add the probe minibatch to the compute time")
    count_mask_bits: bool = Field(
        default=False,
        description="add the mask to the upload: a bit per prunable weight, or a list of positions if that is shorter",
    )

    @field_validator("importance")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in IMPORTANCES:
            raise IMPORTANCES.unknown(name, f"{cls.owner}.importance")
        return name

    def num_kept(self, budget: Array, shape: ModelShape) -> Array:
        """The budget itself, or the largest count that Eq. (3) makes of whole neurons within it."""
        if self.structure != "neurons":
            return budget
        layers = shape.layers
        whole = {k: structured_count(layers, unit_keep_for(layers, k)) for k in np.unique(budget).tolist() if k > 0}
        return np.array([whole.get(k, 0) for k in budget.tolist()])

    def charges(self, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
        charges = own_mask(shape) if self.count_mask_bits else FREE
        return replace(charges, probe=self.count_probe)

    def fully_charged(self) -> Ranking:
        """Charges the mask's bits, and the probe minibatch if the importance reads one."""
        importance = IMPORTANCES[self.importance]
        probes = importance.needs_gradient or importance.needs_loss
        return self.model_copy(update={"count_probe": probes, "count_mask_bits": True})

    @property
    def whole_units(self) -> bool:
        return self.structure == "neurons"


def scores_of(ranking: Ranking, view: DeviceView) -> Array:
    """Importance of every prunable weight of the dense received model.

    Differs from the literal Eq. (2), see `airprune.methods.masking.core.importance`. The probe minibatch is the round's
    first, so pruning changes nothing in which samples are visited when.
    """
    importance = IMPORTANCES[ranking.importance]
    probe = Probe(
        weights=view.weights,
        gradient=view.dense_gradient if importance.needs_gradient else None,
        learning_rate=view.learning_rate,
        loss=view.loss if importance.needs_loss else None,
        rng=view.rng if importance.needs_rng else None,
    )
    return importance.score(probe)


def by_moves(ranking: Ranking) -> bool:
    """Returns whether the weights stay that a step on the probe minibatch moves most, as in the paper."""
    return (ranking.importance, ranking.scope, ranking.structure) == ("update", "global", "weights")


def ranked_mask(ranking: Ranking, view: DeviceView) -> Array | None:
    """m of Eq. (5): exactly `keep` weights, or None for all of them."""
    if view.keep >= view.shape.prunable_weights:
        return None
    if by_moves(ranking):
        received, rate = view.received_weights, view.learning_rate
        mask = mask_of_moves(received, view.passing_gradient(), rate, keep=view.keep, layers=view.shape.layers)
        if mask is not None:
            return mask
    return best_weights(ranking, scores_of(ranking, view), view)


def best_weights(ranking: Ranking, scores: Array, view: DeviceView) -> Array:
    """The `keep` weights with the highest scores, or the units that fit into as many."""
    layers, ties = view.shape.layers, np.abs(view.weights)
    if ranking.structure == "neurons":
        return choose_units(scores, keep=view.keep, layers=layers, tie_break=ties).mask
    return choose_mask(scores, keep=view.keep, layers=layers, scope=ranking.scope, tie_break=ties)
