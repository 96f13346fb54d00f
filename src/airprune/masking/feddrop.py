"""Federated dropout: in every round the server draws which hidden units a device gets, as many as fit its deadline.

Of each hidden layer stays the same share, rounded up, of units drawn without replacement; u of U units that stay count
U/u times while they train, so that what reads them sees the same mean. Exact numbers instead of coin flips: no device
is ever late by chance. The mask follows from the run's seed and costs no uplink.

Differs from the source, which flips a coin for every unit with a rate chosen by the channel.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from airprune.components import ModelShape
from airprune.masking.base import DeviceView, Masking, RoundView, SubModel, Values
from airprune.masking.widths import graph_of, narrowed, weights_at, weights_within, width_of
from airprune.pruning.units import UnitGraph, foremost
from airprune.settings.section import Section

Array = np.ndarray


class FedDropOptions(Section):
    """Who draws for whom."""

    subnets: Literal["per-device", "uniform"] = Field(
        default="per-device",
        description="a sub-network for each device; or one for all, as large as everybody can carry",
    )
    scale: bool = Field(default=True, description="let the kept units count for the dropped ones while training")


def weights(options: FedDropOptions, budget: Array, shape: ModelShape) -> Array:
    graph = graph_of(shape)
    bought = weights_within(graph, budget, graph.every_width)
    return bought if options.subnets == "per-device" else np.full_like(bought, bought.min())


def bounds(options: FedDropOptions, shape: ModelShape, values: Values) -> tuple[int, int]:
    graph = graph_of(shape)
    return weights_at(graph, graph.every_width[0]), shape.prunable_weights


def prepare(options: FedDropOptions, view: RoundView, values: Values) -> tuple[Array | None, Values]:
    """One draw for all."""
    if options.subnets == "per-device":
        return None, values
    return drawn(graph_of(view.shape), int(view.keep.min()), view.rng()), values


def choose(options: FedDropOptions, view: DeviceView) -> SubModel:
    """The drawn units, with U/u on the weights that read them."""
    graph = graph_of(view.shape)
    mask = drawn(graph, view.keep, view.rng) if view.shared is None else view.shared
    counts = graph.counts(width_of(graph, view.keep, graph.every_width))
    return narrowed(graph, mask, (graph.sizes / counts).tolist() if options.scale else None)


def drawn(graph: UnitGraph, keep: int, rng: np.random.Generator) -> Array:
    """The weights of units drawn without replacement, as many as `keep` weights buy.  [num_prunable] bool"""
    width = width_of(graph, keep, graph.every_width)
    return graph.mask(foremost(graph, width, rng.random(graph.num_units)))


def whole_units(options: FedDropOptions) -> bool:
    return True


MASKING = Masking(
    name="feddrop",
    summary="hidden units drawn anew for every device and round, as many as fit; the kept ones count for the dropped",
    source="after Wen et al. (FedDrop)",
    Options=FedDropOptions,
    choose=choose,
    weights=weights,
    bounds=bounds,
    prepare=prepare,
    whole_units=whole_units,
)
