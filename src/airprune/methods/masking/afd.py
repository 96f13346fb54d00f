"""Adaptive federated dropout: units that were kept when the loss fell are kept again, and sampled first later on.

A score map says how much the loss fell with each unit. After a round of loss L: if L is below the loss before, the kept
units score its relative fall and the same units train again; else units are sampled again, those with a score first and
in proportion to it, the others by chance. One map for all devices (`single`, updated once per global round) or one for
each (`multi`, updated whenever the device has trained). Nothing is scaled, neither in training nor in evaluation;
units that no device has ever trained are no part of the evaluated model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot
from airprune.components.units import UnitGraph, foremost
from airprune.errors import NotFinite
from airprune.methods.masking.base import Array, Charges, DeviceView, RoundView, SubModel, Values
from airprune.methods.masking.widths import WholeUnits, graph_of, narrowed, weights_at, weights_within, width_of
from airprune.methods.objectives.base import LocalRun, Memory
from airprune.methods.outcome import Outcome

SCORES, KEYS, LOSS = "afd.scores", "afd.keys", "afd.loss"
KEPT, SEEN = "afd.kept", "afd.seen"


def sampled_keys(scores: Array, rng: np.random.Generator) -> Array:
    """Ranks of all units: those with a score first, sampled in proportion to it (Gumbel), then the others by chance."""
    scored = scores > 0.0
    chance = rng.gumbel(size=len(scores)) + np.log(np.where(scored, scores, 1.0))
    keys = np.empty(len(scores))
    keys[np.lexsort((chance, scored))] = np.arange(len(scores))
    return keys


def learnt(memory: Mapping[str, Array], kept: Array, loss: float, rng: np.random.Generator) -> Values:
    """The map after a round of this loss with these units; a last loss of 0 stands for none yet."""
    before, scores, keys = float(memory[LOSS][0]), memory[SCORES], memory[KEYS]
    if math.isnan(loss):
        raise NotFinite(
            "afd.loss", "must be a number", loss, "Training has probably diverged: lower the learning rate."
        )
    assert loss > 0.0, "a cross-entropy is positive"
    if loss < before:
        scores = np.where(kept, (before - loss) / before, scores)
    else:
        keys = sampled_keys(scores, rng)
    return {SCORES: scores, KEYS: keys, LOSS: np.array([loss])}


class Afd(WholeUnits):
    """Units sampled by a score map."""

    name = "afd"
    summary = "adaptive federated dropout: a score map keeps units that lowered the loss"
    source = "after Bouacida, Hou, Zang, Liu (adaptive federated dropout)"

    maps: Literal["single", "multi"] = Field(default="single", description="one score map for all devices, or one each")
    rate: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="share of every hidden layer's units that is dropped even if the deadline allows more"
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Score, rank and last loss; of a single map also what happened since the last global round."""
        num_units = graph_of(shape).num_units
        owner = Owner.RUN if self.maps == "single" else Owner.DEVICE
        found = [
            Slot(name=SCORES, owner=owner, shape=lambda _: (num_units,), dtype="<f8"),
            Slot(name=KEYS, owner=owner, shape=lambda _: (num_units,), dtype="<f8"),
            Slot(name=LOSS, owner=owner, shape=lambda _: (1,), dtype="<f8"),
        ]
        if self.maps == "single":
            found.append(Slot(name=KEPT, owner=owner, shape=lambda _: (num_units,), dtype="<f8", start=1.0))
            # The global round that is under way, and the sum and the number of its edge rounds' losses.
            found.append(Slot(name=SEEN, owner=owner, shape=lambda _: (3,), dtype="<f8"))
        return (*super().slots(shape), *found)

    def num_kept(self, budget: Array, shape: ModelShape) -> Array:
        graph = graph_of(shape)
        bought = weights_within(graph, budget, self._widths(graph))
        return np.full_like(bought, bought.min()) if self.maps == "single" else bought

    def bounds(self, shape: ModelShape, values: Values) -> tuple[int, int]:
        graph = graph_of(shape)
        family = self._widths(graph)
        return weights_at(graph, family[0]), weights_at(graph, family[-1])

    def charges(self, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
        """Charges the training loss that every device sends."""
        return Charges(always_bits=64.0)

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        """Returns the mask for all devices, if they share a map: evaluates the last global round first."""
        if self.maps == "multi":
            return None, values
        graph, rng = graph_of(view.shape), view.rng()
        values, (under_way, total, count) = dict(values), values[SEEN].tolist()
        if count and under_way != view.global_round:
            values |= learnt(values, values[KEPT] > 0.0, total / count, rng)
            values |= {KEPT: np.ones(graph.num_units), SEEN: np.array([view.global_round, 0.0, 0.0])}
        elif not values[KEYS].any():
            values[KEYS] = sampled_keys(values[SCORES], rng)
        width = width_of(graph, int(view.keep.min()), self._widths(graph))
        kept = foremost(graph, width, values[KEYS])
        values[KEPT] = values[KEPT] * np.concatenate(kept)
        return graph.mask(kept), values

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        view, trained = outcome.view, super().after_edge_round(outcome, values)
        if self.maps == "multi" or not np.isfinite(view.train_loss):
            return trained
        _, total, count = values[SEEN].tolist()
        return trained | {SEEN: np.array([view.global_round, total + view.train_loss, count + 1.0])}

    def choose(self, view: DeviceView) -> SubModel:
        graph = graph_of(view.shape)
        if view.shared is not None:
            return narrowed(graph, view.shared)
        width = width_of(graph, view.keep, self._widths(graph))
        is_first = view.memory[LOSS][0] == 0.0
        keys = sampled_keys(view.memory[SCORES], view.rng) if is_first else view.memory[KEYS]
        return narrowed(graph, graph.mask(foremost(graph, width, keys)))

    def finish(self, run: LocalRun, memory: Memory) -> Values:
        """Updates a device's own map. The units of its first round get no score: there is no loss to compare."""
        view = run.view
        if self.maps == "single":
            return {}
        graph = graph_of(view.shape)
        width = width_of(graph, view.keep, self._widths(graph))
        kept = np.concatenate(foremost(graph, width, view.memory[KEYS]))
        return learnt(view.memory, kept, run.loss, view.rng)

    def _widths(self, graph: UnitGraph) -> tuple[float, ...]:
        every = graph.every_width
        return tuple(width for width in every if width <= 1.0 - self.rate + 1e-9) or every[:1]
