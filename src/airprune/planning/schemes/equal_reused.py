"""Gives equal shares with the ratios of the joint optimum: the paper's "Equal Resource Pruning".

This reading reproduces Table II; with the ratios re-optimised the latency would be the deadline by construction
(that is `equal-resolved`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from airprune.planning.plan import Status
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, equal_shares, status_of_latency
from airprune.planning.schemes.optimal import Optimal


class EqualReused(Optimal):
    """Takes the optimum's ratios with equal shares."""

    name = "equal-reused"
    summary = "pruning ratios of the joint optimum, but equal shares (the paper's Table II baseline)"
    adapts = False

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Sets ρ of `optimal` with b = 1/N_k; late wherever the optimum gave a device more than its equal share."""
        joint = super().allocate(problem)
        share = equal_shares(problem)
        status = np.where(joint.status == Status.OK, status_of_latency(problem, share, joint.ratio), joint.status)
        return replace(joint, share=share, status=status, shadow_price=np.nan)
