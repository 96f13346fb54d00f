"""TT-Prune: the edge averages every ΔT = T_th / M, and slower devices deliver every second, third, … time.

A device that takes T_n is in tier m = ⌈T_n / ΔT⌉ and delivers in rounds k ≡ 0 (mod m) what it trained from the model of
round k − m. Each tier is averaged by itself, then the tiers that delivered count equally. The tier that a device would
be in with a whole model and an equal share of the band, but at most M, gives the deadline m ΔT that its plan must keep.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, Values
from airprune.methods.topology.base import HISTORY, Array, Due, DueView, WiredTopology
from airprune.planning.problem import PlanProblem
from airprune.wireless.latency import device_latency_s


def tier_of(latency_s: Array, period_s: Array | float) -> Array:
    """m = ⌈T_n / ΔT⌉, at least 1; a billionth of a period is rounding."""
    return np.maximum(np.ceil(np.asarray(latency_s) / period_s * (1.0 - 1e-9)), 1.0).astype(np.int64)


class Tiers(WiredTopology):
    """Averages several times per deadline."""

    name = "tiers"
    summary = "time-triggered: the edge averages several times per deadline; slower devices deliver less often"
    source = "after TT-Prune (Zhang, Deng, Mahmoodi)"
    fully_open: ClassVar = {"tiers": 1}

    tiers: Annotated[int, Field(ge=1, le=64)] = Field(
        default=2,
        description="M: averages per deadline, and number of models that an edge stores; 1: all devices in every round",
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The models with which the last M rounds of an edge began, the latest first."""
        return (Slot(name=HISTORY, owner=Owner.EDGE, shape=lambda shape: (self.tiers, shape.num_state), dtype="<f8"),)

    def deadlines(self, problem: PlanProblem) -> Array:
        """m ΔT of each device; the last tier has T_th."""
        equal_bps = problem.full_band_rate_bps / problem.groups.spread(problem.groups.counts)
        whole_s = device_latency_s(
            problem.fixed_weights + problem.prunable_weights,
            seconds_per_weight=problem.seconds_per_weight,
            rate_bps=equal_bps,
            bits_per_weight=problem.bits_per_weight,
            fixed_bits=problem.fixed_bits,
            extra_seconds=problem.extra_seconds,
        )
        share = np.minimum(whole_s / problem.deadline_s, 1.0)
        return problem.deadline_s * tier_of(share, 1.0 / self.tiers) / self.tiers

    def due(self, view: DueView, values: Values) -> tuple[Due, Values]:
        """Returns the tiers due; where the slowest device misses the deadline, ΔT is a part of its time instead."""
        latency_s, edge, deadline_s = view.latency_s, view.edge, view.deadline_s
        period_s = np.full(len(edge), deadline_s / self.tiers)
        for k in np.unique(edge).tolist():
            slowest_s = np.nanmax(latency_s[edge == k], initial=deadline_s)
            period_s[edge == k] = slowest_s / self.tiers
        tier = tier_of(np.where(np.isnan(latency_s), 0.0, latency_s), period_s)
        due = Due(
            delivers=(view.round_index + 1) % tier == 0,
            lag=tier - 1,
            period_s=period_s,
            begins=view.round_index % tier == 0,
        )
        return due, {}
