"""Gives equal shares and whole models, however long it takes: the paper's "No Pruning"."""

from __future__ import annotations

import numpy as np

from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme, equal_share_latency_s, equal_shares, status_of_latency


class NoPruning(Scheme):
    """Prunes nothing."""

    name = "no-pruning"
    summary = "equal shares and whole models, whatever the deadline"
    takes_slices = True
    takes_groups = True
    adapts = False

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Sets ρ = 0 even where ρ_min is larger, and b = 1/N_k."""
        share = equal_shares(problem)
        ratio = np.zeros(problem.num_devices)
        return Allocation(
            share=share,
            ratio=ratio,
            status=status_of_latency(problem, share, ratio),
            shadow_price=np.nan,
            min_deadline_s=equal_share_latency_s(problem, problem.conv_weights + problem.fc_weights),
        )
