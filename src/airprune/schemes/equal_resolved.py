"""Equal shares, ratios re-optimised for them: a fair baseline that does meet the deadline."""

from __future__ import annotations

import numpy as np

from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import ratio_for_share
from airprune.schemes.base import (
    Allocation,
    Scheme,
    equal_share_latency_s,
    equal_shares,
    status_of_fixed_shares,
)


def allocate(problem: PlanProblem) -> Allocation:
    """b = 1/N_k, then the smallest ρ that meets the deadline, Eq. (31)."""
    share = equal_shares(problem)
    return Allocation(
        share=share,
        ratio=np.minimum(ratio_for_share(problem, share), problem.max_pruning_ratio),
        status=status_of_fixed_shares(problem, share),
        shadow_price=np.nan,
        min_deadline_s=equal_share_latency_s(problem, problem.smallest_model_weights),
    )


SCHEME = Scheme(
    name="equal-resolved",
    summary="equal shares, each ratio the smallest that meets the deadline with its share",
    allocate=allocate,
)
