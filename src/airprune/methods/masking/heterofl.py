"""HeteroFL: every device trains the leading units of each hidden layer, at the largest of a few widths that fits.

While they train, the activations of a layer of width p are divided by p. Where nobody holds a weight, the servers keep
their old value. The same units stay in every round, so nothing tells which they are but the width.

Differs from the source: biases always travel, and those of units a device does not hold count as unchanged; outputs of
classes that a device has no samples of are not masked.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, field_validator

from airprune.components.component import ModelShape
from airprune.errors import InvalidValue
from airprune.methods.masking.base import DeviceView, Masking, SubModel, Values, not_by_data
from airprune.methods.masking.widths import graph_of, leading_mask, narrowed, weights_at, weights_within, width_of
from airprune.settings.section import Ratio, Section

Array = np.ndarray


class WidthOptions(Section):
    """Which widths there are."""

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


def weights(options: WidthOptions, budget: Array, shape: ModelShape) -> Array:
    return weights_within(graph_of(shape), budget, options.widths)


def bounds(options: WidthOptions, shape: ModelShape, values: Values) -> tuple[int, int]:
    return weights_at(graph_of(shape), options.widths[0]), shape.prunable_weights


def choose(options: WidthOptions, view: DeviceView) -> SubModel:
    graph = graph_of(view.shape)
    width = width_of(graph, view.keep, options.widths)
    return narrowed(graph, leading_mask(graph, width), [1.0 / width] * len(graph.groups))


def whole_units(options: WidthOptions) -> bool:
    return True


MASKING = Masking(
    name="heterofl",
    summary="the leading units of every hidden layer, at the largest of a few widths that fits",
    source="after Diao, Ding, Tarokh (HeteroFL)",
    Options=WidthOptions,
    choose=choose,
    weights=weights,
    bounds=bounds,
    whole_units=whole_units,
    by_data=not_by_data,
)
