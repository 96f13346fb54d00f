"""Federated dropout: in every round the server samples which hidden units a device gets, as many as fit its deadline.

Of each hidden layer stays the same share, rounded up, of units sampled without replacement; u of U units that stay
count U/u times while they train, so that what reads them sees the same mean. Exact numbers instead of coin flips: no
device ever misses the deadline by chance. The mask follows from the run's seed and costs no uplink. Evaluated is the
whole model, unscaled; as long as only T of U units have ever been trained, those alone, counting U/T times.

Differs from the source, which flips a coin for every unit with a rate chosen by the channel. `draw = "bernoulli"` does
that: each unit stays with probability u/U, and counts U/u times, whatever the coins say. A device with many of them has
more than fits and misses the deadline; where all coins of a layer fall the other way, the unit nearest to staying
stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from airprune.components.component import ModelShape
from airprune.components.units import UnitGraph, foremost, widest
from airprune.errors import InvalidValue
from airprune.methods.masking.base import Array, DeviceView, RoundView, SubModel, Values
from airprune.methods.masking.widths import WholeUnits, graph_of, narrowed, weights_at, weights_within, width_of


def sampled_units(graph: UnitGraph, keep: int, rng: np.random.Generator) -> Array:
    """The weights of units sampled without replacement, as many as `keep` weights buy.  [num_prunable] bool"""
    width = width_of(graph, keep, graph.every_width)
    return graph.mask(foremost(graph, width, rng.random(graph.num_units)))


def flipped(graph: UnitGraph, width: float, rng: np.random.Generator) -> list[Array]:
    """A coin for each unit of every group, which stays with the share that the width has of it; at least one stays."""
    kept = []
    for keys, share in zip(graph.split(rng.random(graph.num_units)), graph.counts(width) / graph.sizes, strict=True):
        stays = keys < share
        stays[np.argmin(keys)] = True
        kept.append(stays)
    return kept


class FedDrop(WholeUnits):
    """Random units, new in every round."""

    name = "feddrop"
    summary = "federated dropout: random hidden units per device and round, as many as fit"
    source = "after Wen et al. (FedDrop)"
    by_data: ClassVar[bool] = False

    subnets: Literal["per-device", "uniform"] = Field(
        default="per-device",
        description="a sub-network for each device; or one for all, as large as the slowest device can train",
    )
    draw: Literal["exact", "bernoulli"] = Field(
        default="exact",
        description="as many units as fit; or independent draws, as many on average: devices may miss the deadline",
    )
    scale: bool = Field(default=True, description="inverted dropout: scale kept units up while training")

    @model_validator(mode="after")
    def _coins_are_per_device(self) -> Self:
        if self.draw == "bernoulli" and self.subnets == "uniform":
            way_out = 'Use draw = "exact" for one sub-network for all'
            raise InvalidValue(f"{self.owner}.draw", "must be exact with subnets = uniform", "bernoulli", way_out)
        return self

    def num_kept(self, budget: Array, shape: ModelShape) -> Array:
        graph = graph_of(shape)
        bought = weights_within(graph, budget, graph.every_width)
        return bought if self.subnets == "per-device" else np.full_like(bought, bought.min())

    def bounds(self, shape: ModelShape, values: Values) -> tuple[int, int]:
        graph = graph_of(shape)
        return weights_at(graph, graph.every_width[0]), shape.prunable_weights

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        """Returns one sample of units for all; or widths, from which server and device sample the same units."""
        if self.draw == "bernoulli":
            widths = np.zeros(view.device.max(initial=0) + 1)
            graph = graph_of(view.shape)
            widths[view.device] = widest(graph, view.keep, graph.every_width)
            return widths, values
        if self.subnets == "per-device":
            return None, values
        return sampled_units(graph_of(view.shape), int(view.keep.min()), view.rng()), values

    def counts(self, view: RoundView, shared: Array | None) -> Array:
        """Returns the weights that fit, or those of the random draws of the round."""
        if self.draw == "exact":
            return view.keep
        assert shared is not None
        graph = graph_of(view.shape)
        kept = [flipped(graph, float(shared[n]), view.device_rng(n)) for n in view.device.tolist()]
        return np.array([graph.num_weights([int(stays.sum()) for stays in units]) for units in kept], dtype=np.int64)

    def choose(self, view: DeviceView) -> SubModel:
        """Chooses the sampled units, with U/u on the weights that read them."""
        graph = graph_of(view.shape)
        if self.draw == "bernoulli":
            assert view.shared is not None
            width = float(view.shared[view.device])
            mask = graph.mask(flipped(graph, width, view.rng))
        else:
            width = width_of(graph, view.keep, graph.every_width)
            mask = sampled_units(graph, view.keep, view.rng) if view.shared is None else view.shared
        return narrowed(graph, mask, (graph.sizes / graph.counts(width)).tolist() if self.scale else None)

    def factors(self, graph: UnitGraph, trained: Array, values: Values) -> Sequence[float] | None:
        if not self.scale:
            return None
        return [len(stays) / max(1, int(np.count_nonzero(stays))) for stays in graph.kept(trained)]

    @property
    def adapts(self) -> bool:
        return self.draw == "exact"
