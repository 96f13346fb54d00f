"""Solves Theorem 3 exactly: the bandwidth shares that minimise Σ c ρ within their bounds.

Stationarity of the Lagrangian, Eq. (64) onwards, gives with u = 1/√λ

    b_n(u) = clip((s_n u − q̂) / (a_n r_n), b_min,n, b_max,n),    s_n = √(c_n (D_n q̂ + a_n e_n) r_n / W_fully,n).

Each b_n is a ramp in u: flat at b_min up to u_min,n = (a r b_min + q̂)/s, straight up to b_max at
u_max,n = (a r b_max + q̂)/s, flat again. When compute is free (a = 0) the ramp is a step, and the problem
the fractional knapsack: best channels first. So Σ b_n(u) = 1 is solved by sorting the 2 N ramp ends,
finding by bisection over that sorted list the two neighbours between which the sum passes 1, and
interpolating between them, where every b_n is linear. No tolerance, no iteration to converge.

Differs from Eq. (34): the paper omits the clipping; its shares turn negative in its own parameter range.
Nothing here divides by a: a share is always a convex combination of two shares within the bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.planning.edges import EdgeGroups
from airprune.planning.problem import PlanProblem
from airprune.planning.slice_filling import fill_slices
from airprune.planning.tradeoff import ROUNDING_MARGIN, peak_root, ratio_for_share, share_for_weights
from airprune.planning.turns import fill_turns

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Filling:
    """The shares in problem order and multipliers per edge; NaN on edges that have no plan."""

    share: Array
    shadow_price: Array
    lower_share: Array
    upper_share: Array


def share_box(problem: PlanProblem) -> tuple[Array, Array]:
    """Returns (b_min, b_max): the share that ρ_max needs, and the one with which ρ reaches ρ_min.

    One share for a device without uplink, or without time: it needs none or has no plan.
    """
    lower = share_for_weights(problem, problem.smallest_model_weights)
    upper = share_for_weights(problem, problem.largest_model_weights)
    upper = np.where((problem.full_band_rate_bps > 0.0) & (problem.time_for_weights_s > 0.0), upper, 0.0)
    return lower, np.maximum(np.minimum(upper, 1.0), lower)


def water_fill(problem: PlanProblem) -> Filling:
    """Returns the optimal shares of every edge, and the multiplier λ of its bandwidth budget.

    λ is the pruning Σ c ρ that one more unit of bandwidth would save; 0 where bandwidth is left.
    """
    lower, upper = share_box(problem)
    if problem.slice_bandwidth_hz is not None:
        return Filling(*fill_slices(problem, lower, upper), lower, upper)
    if problem.mimo_group is not None:
        return Filling(*fill_turns(problem, peak_root(problem), lower, upper), lower, upper)
    return fill_ramps(problem.groups, lower, upper, *levels(problem, lower, upper))


def levels(problem: PlanProblem, *shares: Array) -> list[Array]:
    """Returns u = (a r b + q̂) / s, the level at which the optimum gives a device each of these shares.

    0 where bandwidth carries no weights, or where they cost nothing: then there is one share.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        root = peak_root(problem)
        per_share = problem.seconds_per_weight * problem.full_band_rate_bps
        return [np.where(root > 0.0, (per_share * share + problem.bits_per_weight) / root, 0.0) for share in shares]


def fill_ramps(groups: EdgeGroups, lower: Array, upper: Array, u_lower: Array, u_upper: Array) -> Filling:
    """Fills shares that rise in a straight line from (u_lower, lower) to (u_upper, upper), up to the level u at which
    each edge spends its bandwidth. All arrays in problem order."""
    ramps = _Ramps(groups, *(groups.arrange(x) for x in (lower, upper, u_lower, u_upper)))
    with np.errstate(divide="ignore", invalid="ignore"):
        share, u = _fill(ramps)
        shadow_price = 1.0 / u**2
    return Filling(groups.restore(share), shadow_price, lower, upper)


def ratio_of_filling(problem: PlanProblem, filling: Filling) -> Array:
    """Returns the smallest ρ that each share allows, Eq. (31); at the lower end it is ρ_max, whatever the rounding."""
    ratio = np.minimum(ratio_for_share(problem, filling.share), problem.max_pruning_ratio)
    # Fixed bits may outweigh all others so far that ρ_max and ρ_min need the same share to the last bit.
    one_share = (filling.lower_share == filling.upper_share) & (problem.fixed_bits > 0.0)
    return np.where((filling.share <= filling.lower_share) & ~one_share, problem.max_pruning_ratio, ratio)


@dataclass(frozen=True, eq=False)
class _Ramps:
    """The functions b_n(u) of all devices, sorted by edge; NaN on devices without any share is harmless here."""

    groups: EdgeGroups
    lower: Array
    upper: Array
    u_lower: Array
    u_upper: Array

    def at(self, u: Array, *, after_step: Array) -> Array:
        """Returns the shares at one level u per edge; on a step of zero width, before it or `after_step` per edge."""
        u = self.groups.repeat(u)
        climbed = np.clip((u - self.u_lower) / (self.u_upper - self.u_lower), 0.0, 1.0)
        climbed = np.where(u >= self.u_upper, 1.0, climbed)
        climbed = np.where((u <= self.u_lower) & ~self.groups.repeat(after_step), 0.0, climbed)
        return self.lower + climbed * (self.upper - self.lower)


def _fill(ramps: _Ramps) -> tuple[Array, Array]:
    """Returns (shares sorted by edge, level u per edge) with Σ b(u) equal to the budget, or all b_max if that fits."""
    groups = ramps.groups
    lowest_sum = groups.sum_arranged(ramps.lower)
    highest_sum = groups.sum_arranged(ramps.upper)
    budget = np.maximum(1.0 - ROUNDING_MARGIN, lowest_sum)
    always = np.ones(groups.num_edges, dtype=bool)

    ends = groups.sorted_together(ramps.u_lower, ramps.u_upper)
    first = 2 * groups.starts
    low, high = np.zeros_like(groups.counts), 2 * groups.counts - 1
    while np.any(low < high):  # the first ramp end at which the sum reaches the budget
        middle = (low + high) // 2
        reached = groups.sum_arranged(ramps.at(ends[first + middle], after_step=always)) >= budget
        low, high = np.where(reached, low, np.minimum(middle + 1, high)), np.where(reached, middle, high)

    u_end = ends[first + low]
    before_end = ramps.at(u_end, after_step=~always)
    on_step = groups.sum_arranged(before_end) <= budget
    # The sum passes the budget either on the steps at u_end, or on the ramps between the previous end and u_end.
    u_left = np.where(on_step, u_end, ends[first + np.maximum(low - 1, 0)])
    left = ramps.at(u_left, after_step=~on_step)
    right = np.where(groups.repeat(on_step), ramps.at(u_end, after_step=always), before_end)
    left_sum, right_sum = groups.sum_arranged(left), groups.sum_arranged(right)
    position = np.clip((budget - left_sum) / (right_sum - left_sum), 0.0, 1.0)
    position = np.where(right_sum > left_sum, position, 0.0)
    share = left + groups.repeat(position) * (right - left)
    u = u_left + position * (u_end - u_left)

    slack = highest_sum <= budget
    share = np.where(groups.repeat(slack), ramps.upper, share)
    has_plan = lowest_sum <= 1.0
    u = np.where(has_plan, np.where(slack, np.inf, u), np.nan)
    return np.where(groups.repeat(has_plan), share, np.nan), u
