"""Joint optimum of shares and ratios: the paper's "Optimal Pruning", Section V, inside the box."""

from __future__ import annotations

import numpy as np

from airprune.planning.feasibility import min_deadline_s
from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import ratio_for_share
from airprune.planning.water_filling import water_fill
from airprune.schemes.base import Allocation, Scheme, status_of_box


def allocate(problem: PlanProblem) -> Allocation:
    """Minimise Σ c ρ: water-filling for b, then the smallest ρ that b allows, Eq. (31).

    At the ends of the box ρ is exactly ρ_max or ρ_min, not what rounding makes of it.
    """
    filling = water_fill(problem)
    ratio = np.minimum(ratio_for_share(problem, filling.share), problem.max_pruning_ratio)
    ratio = np.where(filling.share <= filling.lower_share, problem.max_pruning_ratio, ratio)
    return Allocation(
        share=filling.share,
        ratio=ratio,
        status=status_of_box(problem, filling.lower_share),
        shadow_price=filling.shadow_price,
        min_deadline_s=min_deadline_s(problem),
    )


SCHEME = Scheme(
    name="optimal",
    summary="shares and ratios chosen together so that the least is pruned (exact)",
    allocate=allocate,
)
