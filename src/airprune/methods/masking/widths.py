"""What maskings of whole units share: a family of narrower models, and the widest of them that a budget buys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from airprune.components.component import ModelShape
from airprune.components.units import UnitGraph, leading, widest
from airprune.errors import InvalidValue
from airprune.methods.masking.base import WHOLE, SubModel

Array = np.ndarray


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
