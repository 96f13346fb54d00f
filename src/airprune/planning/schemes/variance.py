"""Minimises the gradient variance, after Xie et al., "Federated Dropout: convergence analysis and resource allocation"
(arXiv:2501.00379): dropping a share ρ of the weights multiplies the variance of gradients by ρ / (1 − ρ).

The last weights of a device are worth the most, so that no device loses all of them to a better channel, as with
`optimal`.
"""

from __future__ import annotations

import numpy as np

from airprune.planning.feasibility import min_deadline_s
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme, status_of_box
from airprune.planning.tradeoff import unclipped_ratio_for_share
from airprune.planning.water_filling import fill_ramps, levels, ratio_of_filling, share_box


class Variance(Scheme):
    """Minimises the variance that pruning adds to gradients."""

    name = "variance"
    summary = "least variance that pruning adds to gradients; no device is pruned to the limit for a better channel"
    source = "after Xie et al., arXiv:2501.00379"

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Minimises Σ c (1/κ − 1) with κ = 1 − ρ, by the same water-filling as `optimal`, exactly.

        Stationarity: c/κ² = λ db/dκ with db/dκ = W_fully (q̂ D + a e) / (r (D − a W)²), the derivative of the share
        that κ needs. Its root is κ = M / (a W_fully + √λ g) with M = D − a W_conv and g² = W_fully (q̂ D + a e) / (c r),
        and the share that this κ needs is

            b = (q̂ W_conv + e) / (r M) + u c g / M,    u = 1/√λ:

        again a ramp in u, even where compute is free. It reaches a share b with its κ at κ times the level of
        `optimal`, since the objectives' slopes are c/κ² and c. The shadow price is the drop of Σ c (1/κ − 1) per unit
        of bandwidth.
        """
        lower, upper = share_box(problem)
        kept_least = 1.0 - problem.max_pruning_ratio
        with np.errstate(invalid="ignore"):  # devices that have no share at all
            ratio_at_upper = np.maximum(unclipped_ratio_for_share(problem, upper), problem.min_pruning_ratio)
            kept_most = np.maximum(1.0 - ratio_at_upper, kept_least)
            u_lower, u_upper = levels(problem, lower, upper)
            filling = fill_ramps(problem.groups, lower, upper, kept_least * u_lower, kept_most * u_upper)
        return Allocation(
            share=filling.share,
            ratio=ratio_of_filling(problem, filling),
            status=status_of_box(problem, lower),
            shadow_price=filling.shadow_price,
            min_deadline_s=min_deadline_s(problem),
        )
