"""Ends as soon as possible without pruning: shares with which all devices of an edge arrive together.

With equal compute times the round takes a W + Σ q̂ W / r: the uploads one after the other would take no longer.
"""

from __future__ import annotations

import numpy as np

from airprune.planning.feasibility import min_deadline_s
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme, equal_shares, status_of_latency
from airprune.planning.tradeoff import share_for_weights

Array = np.ndarray


class MinMaxTime(Scheme):
    """Minimises the round time of whole models."""

    name = "min-max-time"
    summary = "whole models; shares with which all devices of an edge arrive together, as soon as possible"
    takes_slices = True
    takes_groups = True
    adapts = False

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Sets ρ = ρ_min and b = (q̂ W + e) / (r (T − a W − x)) with the smallest T for which Σ b ≤ 1."""
        ratio = np.array(problem.min_pruning_ratio)
        soonest_s, share = soonest(problem, problem.largest_model_weights)
        return Allocation(
            share=share,
            ratio=ratio,
            status=status_of_latency(problem, share, ratio),
            shadow_price=np.nan,
            min_deadline_s=soonest_s,
        )


def soonest(problem: PlanProblem, weights: Array) -> tuple[Array, Array]:
    """Returns (the smallest time in which each edge has `weights` of all its devices, the shares for that).

    [num_edges], [num_devices]; equal shares where a device has no rate and no time suffices.
    """
    end_s = min_deadline_s(problem, weights)
    never = problem.groups.spread(~np.isfinite(end_s))
    finite_s = np.where(np.isfinite(end_s), end_s, 1.0)
    share = share_for_weights(problem, weights, problem.groups.spread(finite_s))
    if problem.turns is not None:
        share = problem.turns.longest(share)
    return end_s, np.where(never, equal_shares(problem), share)
