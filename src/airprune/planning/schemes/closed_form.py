"""Evaluates Theorem 3 verbatim, Eqs. (34) and (35), with the multiplier that spends the whole bandwidth.

It shows what the printed formula does: it has no bounds, so in the paper's own parameter range it allocates negative
shares. Use `optimal` to plan.
"""

from __future__ import annotations

import numpy as np

from airprune.planning.feasibility import min_deadline_s
from airprune.planning.plan import DEADLINE_TOLERANCE, Status
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme
from airprune.planning.tradeoff import latency_s, peak_root, unclipped_ratio_for_share

_LOST_DIGITS = 1e-9


class ClosedForm(Scheme):
    """Evaluates Theorem 3 as printed."""

    name = "closed-form"
    summary = "Theorem 3 as printed, without bounds on shares and ratios; its status shows where it fails"

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Returns b = (s u − q̂) / (a r) with u = (1 + Σ q̂/(a r)) / Σ s/(a r), and the ρ of Eq. (35), unbounded.

        Eq. (34) divides by a; where compute is free it has no value, and the edge counts as outside the bounds. The
        theorem has no fixed bits and no extra seconds: with them, s and ρ are those of the widened Eq. (26), and the
        shares are the stationary point of the unbounded problem, which is what the theorem prints without them.
        """
        groups = problem.groups
        with np.errstate(divide="ignore", invalid="ignore"):
            per_share = problem.seconds_per_weight * problem.full_band_rate_bps
            root = peak_root(problem)
            u = (1.0 + groups.sum(problem.bits_per_weight / per_share)) / groups.sum(root / per_share)
            share = (root * groups.spread(u) - problem.bits_per_weight) / per_share
            ratio = unclipped_ratio_for_share(problem, share)
            is_number = np.isfinite(share) & np.isfinite(ratio)
            share, ratio = np.where(is_number, share, np.nan), np.where(is_number, ratio, np.nan)
            # Where the formula loses all its digits, it may be within bounds and still miss the deadline.
            in_time = latency_s(problem, share, ratio) <= problem.deadline_s * (1.0 + _LOST_DIGITS)
            inside = (
                in_time
                & (share >= 0.0)
                & (share <= 1.0 + DEADLINE_TOLERANCE)
                & (ratio >= problem.min_pruning_ratio - DEADLINE_TOLERANCE)
                & (ratio <= problem.max_pruning_ratio + DEADLINE_TOLERANCE)
            )
            shadow_price = 1.0 / u**2
        outside = groups.any(~inside)
        return Allocation(
            share=share,
            ratio=ratio,
            status=np.where(outside, str(Status.OUTSIDE_BOX), str(Status.OK)),
            shadow_price=shadow_price,
            min_deadline_s=min_deadline_s(problem),
        )
