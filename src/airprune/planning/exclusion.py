"""Plans without the devices that block their edge."""

from __future__ import annotations

import numpy as np

from airprune.planning.plan import Plan
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Scheme


def without_blockers(scheme: Scheme, problem: PlanProblem, plan: Plan) -> tuple[Plan, np.ndarray]:
    """Returns (plan, in_plan): infeasible edges are planned again without the devices that block them.

    With interference, the other edges then spend other shares, so that another device may block its edge: planned until
    every edge that has devices left has a plan. If no device would be left, the plan is the last one, which has failed.

    Args:
      plan: the scheme's plan of the problem.
    """
    in_plan = np.ones(problem.num_devices, dtype=bool)
    while plan.failed.any():
        remaining = in_plan.copy()
        remaining[in_plan] = ~plan.blocking_devices
        if not remaining.any() or remaining.sum() == in_plan.sum():
            break
        in_plan = remaining
        plan = scheme.plan(problem.subset(in_plan))
    return plan, in_plan
