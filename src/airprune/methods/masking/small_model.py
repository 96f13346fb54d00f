"""One small model for everybody: the leading units at the largest width that all devices can carry.

The width is that of the first round's weakest device and stays for the run; who cannot carry it in a later round is
left out of that round. What lies outside is never trained, never sent and no part of the model that is judged.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot
from airprune.components.units import UnitGraph
from airprune.methods.masking.base import DeviceView, Masking, RoundView, SubModel, Values, not_by_data
from airprune.methods.masking.widths import graph_of, leading_mask, narrowed, weights_at, weights_within, width_of
from airprune.settings.section import Section

Array = np.ndarray
SIZE = "small-model.weights"


class SmallModelOptions(Section):
    """How small."""

    width: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="share of every hidden layer's units; none: what all can carry in the first round"
    )


def slots(options: SmallModelOptions, shape: ModelShape) -> tuple[Slot, ...]:
    """Prunable weights of the small model; 0 until the first round."""
    return (Slot(name=SIZE, owner=Owner.RUN, shape=lambda _: (1,), dtype="<i8"),)


def _widths(options: SmallModelOptions, graph: UnitGraph) -> tuple[float, ...]:
    return graph.every_width if options.width is None else (options.width,)


def weights(options: SmallModelOptions, budget: Array, shape: ModelShape) -> Array:
    graph = graph_of(shape)
    bought = weights_within(graph, budget, _widths(options, graph))
    return np.full_like(bought, bought.min())


def bounds(options: SmallModelOptions, shape: ModelShape, values: Values) -> tuple[int, int]:
    graph, settled = graph_of(shape), int(values[SIZE][0])
    if settled:
        return settled, settled
    family = _widths(options, graph)
    return weights_at(graph, family[0]), weights_at(graph, family[-1])


def prepare(options: SmallModelOptions, view: RoundView, values: Values) -> tuple[Array | None, Values]:
    """Settles the size in the first round."""
    if values[SIZE][0]:
        return None, values
    return None, values | {SIZE: np.array([view.keep.min()], dtype=np.int64)}


def choose(options: SmallModelOptions, view: DeviceView) -> SubModel:
    graph = graph_of(view.shape)
    return narrowed(graph, leading_mask(graph, width_of(graph, view.keep, _widths(options, graph))))


def judged(options: SmallModelOptions, shape: ModelShape, model: Array, values: Values) -> Array:
    """Without the units that nobody trains."""
    graph = graph_of(shape)
    small = model.copy()
    small[shape.prunable] *= leading_mask(graph, width_of(graph, int(values[SIZE][0]), _widths(options, graph)))
    return small


def whole_units(options: SmallModelOptions) -> bool:
    return True


MASKING = Masking(
    name="small-model",
    summary="one model of the largest width that everybody can carry",
    source="after Cheng, Charles, Garrett, Rush (baselines of federated dropout)",
    Options=SmallModelOptions,
    slots=slots,
    choose=choose,
    weights=weights,
    bounds=bounds,
    prepare=prepare,
    judged=judged,
    whole_units=whole_units,
    by_data=not_by_data,
)
