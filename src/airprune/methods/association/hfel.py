"""Devices move between edges, or change places, while that lowers what the edges' plans cost together.

What an edge costs is read from the plan that the scenario's own scheme would make for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from airprune.methods.association.base import Array, Association, AssociationView, Served, Values
from airprune.methods.association.descent import Group, as_bands, descend
from airprune.settings.section import NonNegative


class Hfel(Association):
    """Associates by what the edges' plans cost."""

    name = "hfel"
    summary = "local search: transfers and exchanges of devices while they lower the cost of the edges"
    source = "after Luo et al. (HFEL)"

    energy_weight: NonNegative = Field(
        default=1.0, description="weight of the energy of an edge's devices in a round, per joule"
    )
    time_weight: NonNegative = Field(
        default=1.0, description="weight of the latency of an edge's slowest device, per second"
    )
    pruning_weight: NonNegative = Field(
        default=0.0,
        description="weight of a pruning ratio; a device without a feasible plan costs as N pruned whole",
    )
    objective: Literal["sum", "max"] = Field(default="sum", description="sum or maximum of the costs of the edges")
    exchanges: bool = Field(default=True, description="also exchange pairs of devices; slow on large networks")

    def decide(self, view: AssociationView, values: Values) -> tuple[Served, Values]:
        """Searches from the best channel of each device on."""
        edge = descend(
            view.gains().argmax(axis=1),
            view.network.num_edges,
            lambda groups: self.edge_costs(view, groups),
            worst=self.objective == "max",
            exchanges=self.exchanges,
        )
        return view.served_by(edge), values

    def edge_costs(self, view: AssociationView, groups: Sequence[Group]) -> Array:
        """λ_e Σ E + λ_t max T + λ_ρ (Σ ρ + N · blocked devices) of every group.  [num_groups]

        N are all devices of the network: were it less, it might pay to send devices where they cannot take part.
        """
        problem = view.problem(*as_bands(groups))
        plan = view.plan(problem)
        cost = np.zeros(len(groups))
        if plan.failed.any():
            blocked = plan.blocking_devices
            np.add.at(cost, problem.edge[blocked], self.pruning_weight * view.network.num_devices)
            if blocked.all():
                return cost
            plan = view.plan(problem.subset(~blocked))
        bands = plan.problem.groups
        cost[bands.ids] += self.pruning_weight * bands.sum(plan.pruning_ratio)
        cost[bands.ids] += self.time_weight * plan.edge_latency_s
        if self.energy_weight > 0.0:
            cost[bands.ids] += self.energy_weight * bands.sum(plan.energy_j)
        return cost
