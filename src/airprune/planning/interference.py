"""Plans edges that use the same bandwidth: the shares of one edge's devices are interference at the others.

    SINR_n at k = SNR_n / (1 + L_k),  L_k = Σ over devices m of other edges of b_m g_mk p / σ²

A device sends with its power spread over the whole bandwidth, b p on its share (Eq. (10)), at random places of it, so
that L_k is the mean interference over noise at station k. Where its whole power lies on its slice, it is g_mk p / σ².
Rates follow from shares and shares from rates: plans are repeated with the interference of the last one until nothing
changes. Total shares never exceed 1, so loads are bounded; but a scheme that spends the whole bandwidth moves shares
among devices, so loads may fall on the way, and no theorem promises that they settle. Where they have not after 60
plans, as with the steps of an MCS that go round in circles, the highest loads from there on are planned with, which no
device exceeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from airprune.planning.plan import Plan
    from airprune.planning.problem import PlanProblem

Array = np.ndarray

_MAX_PLANS, _CIRCLES_AFTER = 200, 60
_SETTLED = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Interference:
    """The links of a problem's devices to all stations, in the order of the problem.

    Attributes:
      snr: g_n p / σ² at the device's own station.  [num_devices]
      heard: g_mk p / σ² of each device at every station that uses its bandwidth, 0 at its own and at all others.
        [num_devices, num_stations]; edge ids of the problem are their numbers
      rate_bps: (SINR) → r over the whole bandwidth.
    """

    snr: Array
    heard: Array
    rate_bps: Callable[[Array], Array]

    def subset(self, kept: Any) -> Interference:
        """Returns some of the devices."""
        return replace(self, snr=self.snr[kept], heard=self.heard[kept])

    def wider(self, factor: Array | float) -> Interference:
        """Returns the same links where rates are multiplied: a wider bandwidth with the noise power fixed."""
        return replace(self, rate_bps=lambda sinr: self.rate_bps(sinr) * factor)

    def rates_bps(self, load: Array, edge: Array) -> Array:
        """Returns r_n at these loads.  [num_devices]

        Args:
          load: L_k.  [num_stations]
        """
        return self.rate_bps(self.snr / (1.0 + load[edge]))

    def load(self, plan: Plan) -> Array:
        """Returns L_k that devices with this plan cause.  [num_stations]"""
        return np.asarray(_power_share(plan) @ self.heard)


def plan_with_interference(problem: PlanProblem, plan_alone: Callable[[PlanProblem], Plan]) -> Plan:
    """Returns the plan of the fixed point; its problem has the rates with interference.

    Args:
      plan_alone: plans a problem whose rates are given.
    """
    links = problem.interference
    assert links is not None
    load = np.zeros(links.heard.shape[1])
    highest = load
    for count in range(_MAX_PLANS):
        rates_bps = links.rates_bps(load, problem.edge)
        plan = plan_alone(replace(problem, full_band_rate_bps=rates_bps, interference=None))
        caused = links.load(plan)
        if np.all(caused <= load * (1.0 + _SETTLED)) and (
            count > _CIRCLES_AFTER or np.all(caused >= load * (1.0 - _SETTLED))
        ):
            break
        if count >= _CIRCLES_AFTER:
            highest = caused = np.maximum(highest, caused)
        load = caused
    return plan


def _power_share(plan: Plan) -> Array:
    """Returns the part of its power with which each device is heard; on edges without a plan, that of equal shares."""
    groups, turns = plan.problem.groups, plan.problem.turns
    equal = groups.spread(1.0 / (groups if turns is None else turns.of_edges).counts)
    share = np.where(np.isnan(plan.bandwidth_share), equal, plan.bandwidth_share)
    return share if plan.problem.slice_bandwidth_hz is None else (share > 0.0).astype(np.float64)
