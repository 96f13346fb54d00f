"""Finds the joint optimum of shares and ratios: the paper's "Optimal Pruning", Section V, within bounds."""

from __future__ import annotations

from airprune.planning.feasibility import min_deadline_s
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme, status_of_box
from airprune.planning.water_filling import ratio_of_filling, water_fill


class Optimal(Scheme):
    """Minimises the weighted sum of pruning ratios, exactly."""

    name = "optimal"
    summary = "jointly optimal bandwidth shares and pruning ratios: least pruning, exact"
    takes_slices = True
    takes_groups = True

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Minimises Σ c ρ: water-filling for b, then the smallest ρ that b allows, Eq. (31)."""
        filling = water_fill(problem)
        return Allocation(
            share=filling.share,
            ratio=ratio_of_filling(problem, filling),
            status=status_of_box(problem, filling.lower_share),
            shadow_price=filling.shadow_price,
            min_deadline_s=min_deadline_s(problem),
        )
