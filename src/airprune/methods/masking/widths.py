"""Shared by maskings of whole units: a family of narrower models, and the widest of them that a budget buys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
from pydantic import Field, field_validator

from airprune.components.component import ModelShape, Owner, Slot, prunable_weights
from airprune.components.units import UnitGraph, leading, widest
from airprune.errors import InvalidValue
from airprune.methods.masking.base import WHOLE, Array, Masking, SubModel, Values
from airprune.methods.outcome import Outcome
from airprune.settings.section import Ratio


def graph_of(shape: ModelShape) -> UnitGraph:
    """The model's units, or one sentence on why there are none to leave out."""
    if shape.units.groups:
        return shape.units
    rule = "can leave out units only where the model has units between prunable layers"
    way_out = 'Name layers that feed each other in model.prunable (["*"]: all), or choose masking.name = "probe"'
    raise InvalidValue("Scenario.masking.name", rule, shape.units.trouble, way_out)


def weights_at(graph: UnitGraph, width: float) -> int:
    """Prunable weights of the model of this width."""
    return graph.num_weights(graph.counts(width))


def weights_within(graph: UnitGraph, budget: Array, widths: Sequence[float]) -> Array:
    """Prunable weights of the widest model that each budget buys.  [num_devices]"""
    bought, place = np.unique(widest(graph, budget, widths), return_inverse=True)
    return np.array([weights_at(graph, width) for width in bought.tolist()], dtype=np.int64)[place]


def width_of(graph: UnitGraph, keep: int, widths: Sequence[float]) -> float:
    """The widest that `keep` weights buy."""
    return float(widest(graph, np.array([keep]), widths)[0])


@lru_cache(maxsize=256)
def leading_mask(graph: UnitGraph, width: float) -> Array:
    """The weights of the leading units; every caller gets the same array."""
    return graph.mask(leading(graph, width))


def narrowed(graph: UnitGraph, mask: Array, factors: Iterable[float] | None = None) -> SubModel:
    """A sub-model of whole units, whose activations count `factors` times while it trains."""
    if mask.all():
        return WHOLE
    scale = None if factors is None else graph.leaving(factors)
    return SubModel(sent=mask, held=mask, moves=mask, scale=scale, units=graph.kept(mask))


class WholeUnits(Masking):
    """A masking of whole units. Its evaluated model has only the weights that some device has trained and sent.

    Without that, a weight that no device ever held would take part with the value that it was initialised with.
    """

    whole_units: ClassVar[bool] = True

    @property
    def _trained(self) -> str:
        return f"{self.name}.trained"

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Marks the prunable weights that some device has trained and sent since the start of the run."""
        return (Slot(name=self._trained, owner=Owner.RUN, shape=prunable_weights, dtype="|b1"),)

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        return {self._trained: values[self._trained] | outcome.held[outcome.view.shape.prunable]}

    def evaluated(self, shape: ModelShape, model: Array, values: Values) -> Array:
        """Returns the model with zeros where no device has trained, and with the factors of what remains.

        The initial model is evaluated whole.
        """
        trained = values[self._trained]
        if trained.all() or not trained.any():
            return model
        graph, used = graph_of(shape), model.copy()
        weights = used[shape.prunable]
        weights[~trained] = 0.0
        if (factors := self.factors(graph, trained, values)) is not None:
            weights *= graph.leaving(factors)
        return used

    def factors(self, graph: UnitGraph, trained: Array, values: Values) -> Sequence[float] | None:
        """Returns how many times the activations of each group count where only these weights are trained; None: once.

        Agrees with the factors with which they trained, and is 1 if all are.
        """
        return None


class LeadingUnits(WholeUnits):
    """A masking whose sub-models are the leading units of each hidden layer, at one of a few widths."""

    by_data: ClassVar[bool] = False

    widths: tuple[Ratio, ...] = Field(
        default=(0.0625, 0.125, 0.25, 0.5, 1.0), description="shares of every hidden layer's units, ascending up to 1"
    )

    @field_validator("widths")
    @classmethod
    def _ascend(cls, widths: tuple[float, ...]) -> tuple[float, ...]:
        if not widths or widths[0] <= 0.0 or widths[-1] != 1.0 or any(np.diff(widths) <= 0.0):
            rule = "must be shares above 0, ascending up to 1"
            raise InvalidValue(f"{cls.owner}.widths", rule, list(widths), "Example: [0.25, 0.5, 1.0]")
        return widths

    def num_kept(self, budget: Array, shape: ModelShape) -> Array:
        return weights_within(graph_of(shape), budget, self.widths)

    def bounds(self, shape: ModelShape, values: Values) -> tuple[int, int]:
        return weights_at(graph_of(shape), self.widths[0]), shape.prunable_weights

    def sizes(self, shape: ModelShape) -> Array:
        return np.unique([weights_at(graph_of(shape), width) for width in self.widths])
