"""Finds the largest models within a deadline and an energy budget: pruning, clock and power chosen together.

After Pervej, Jin and Dai (arXiv:2308.01562), with equal shares; exact, where they approximate by convex problems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.planning.levels import Levels, last_level
from airprune.planning.plan import DEADLINE_TOLERANCE, Status
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme, equal_shares, status_of_fixed_shares
from airprune.planning.tradeoff import ROUNDING_MARGIN
from airprune.wireless.latency import kept_weights

Array = np.ndarray


class Energy(Scheme):
    """Maximises the kept weights within deadline and energy budget, with equal shares."""

    name = "energy"
    summary = "equal shares; CPU frequency and power that keep the largest models within deadline and energy budget"
    source = "after Pervej et al., arXiv:2308.01562"
    needs_limits = True

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Sets b = 1/N_k, then the largest W with which some (f, p) meets deadline and budget, at the cheapest such."""
        share = equal_shares(problem)
        fit = Fit.of(problem, share)
        status = status_of_fixed_shares(problem, share)
        too_dear = (status == Status.OK) & problem.groups.any(~fit.possible)
        return Allocation(
            share=share,
            ratio=fit.ratio,
            status=np.where(too_dear, str(Status.INFEASIBLE_ENERGY), status),
            shadow_price=np.nan,
            min_deadline_s=problem.groups.max(fit.needed_s),
            cpu_hz=fit.levels.cpu_hz(fit.level),
            power_w=fit.levels.power_w(fit.level),
            blocking=~fit.possible,
        )


@dataclass(frozen=True, eq=False)
class Fit:
    """The largest models within deadline and budget, given the shares.  Arrays [num_devices]

    Attributes:
      ratio, weights: ρ within its bounds, and W(ρ).
      level: the cheapest level of clock and power at which they meet the deadline.
      needed_s: the smallest deadline for the smallest model.
    """

    levels: Levels
    ratio: Array
    weights: Array
    level: Array
    needed_s: Array

    @classmethod
    def of(cls, problem: PlanProblem, share: Array) -> Fit:
        """Finds the largest W where W_T(z), which the deadline allows and grows, meets W_E(z), which the energy allows.

        Both are in closed form in the level z. They cross where bisection finds it, down to the last bit.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            levels = Levels.of(problem, share)
            low, high = last_level(lambda z: levels.weights_in_time(z) <= levels.weights_in_budget(z), levels)
            weights = np.maximum(levels.weights_within(low), levels.weights_within(high))
            ratio = np.where(problem.fc_weights > 0.0, 1.0 - (weights - problem.conv_weights) / problem.fc_weights, 0.0)
            ratio = np.clip(ratio, problem.min_pruning_ratio, problem.max_pruning_ratio)
            weights = kept_weights(ratio, conv_weights=problem.conv_weights, fc_weights=problem.fc_weights)
            level = levels.cheapest_in_time(weights)
            needed_s = _smallest_deadline_s(levels, problem.smallest_model_weights)
        return cls(levels, ratio, weights, level, needed_s)

    @property
    def possible(self) -> Array:
        """True if the smallest model meets the deadline within the energy budget."""
        return self.needed_s <= self.levels.problem.deadline_s * (1.0 + DEADLINE_TOLERANCE)

    def with_time_worth(self, joules_per_second: float) -> Array:
        """Returns the level at which a second saved costs that much, as far as deadline and budget allow."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            wanted, _ = last_level(lambda z: self.levels.second_j(z) <= joules_per_second, self.levels)
            affordable = self.weights * (1.0 - ROUNDING_MARGIN)
            dearest, _ = last_level(lambda z: self.levels.weights_in_budget(z) >= affordable, self.levels)
        return np.maximum(self.level, np.minimum(wanted, dearest))


def _smallest_deadline_s(levels: Levels, weights: Array) -> Array:
    """Returns the smallest deadline of `weights` if all of the budget is spent; infinite where it never suffices."""
    affordable = weights * (1.0 - ROUNDING_MARGIN)
    level, _ = last_level(lambda z: levels.weights_in_budget(z) >= affordable, levels)
    enough = levels.weights_in_budget(level) >= affordable
    time_s = levels.time_s(level, weights)
    return np.where(enough & np.isfinite(time_s), time_s, np.inf)
