"""Finds the devices that make an edge infeasible, and the smallest feasible deadline (erratum: the paper has neither).

A plan exists on an edge exactly if Σ b_min ≤ 1, where b_min,n is the share with which device n's smallest model,
W(ρ_max), meets the deadline; b_min is infinite for a device too slow to train even that in time.
"""

from __future__ import annotations

import numpy as np

from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import ROUNDING_MARGIN, share_for_weights, uplink_bits
from airprune.wireless.slice_noise import growth, nats_of_part, share_of_nats, snr_of_rate

Array = np.ndarray

# Newton below gains digits quadratically; 100 is never reached, it only bounds the loop.
_MAX_NEWTON_STEPS = 100
# Of the deadline with slice noise: a step of Newton's this small leaves an error of its square.
_SETTLED = 1e-8


def blocking_devices(problem: PlanProblem) -> Array:
    """Returns the devices to drop so that the others of an infeasible edge have a plan.  [num_devices]

    The fewest possible: those that need the largest shares. None on an edge that has a plan. Where devices send at
    once, a device counts with what it needs beyond the others of its group, and fewer may suffice.
    """
    groups = problem.groups
    need = share_for_weights(problem, problem.smallest_model_weights)
    has_plan = problem.spent(need) <= 1.0
    need = groups.arrange(need)
    if has_plan.all():  # nothing to sort
        return np.zeros(len(need), dtype=bool)
    by_need = np.lexsort((need, groups.repeat(np.arange(groups.num_edges))))
    ascending = need[by_need]
    added = ascending if problem.turns is None else _beyond_the_group(problem, by_need, ascending)
    running = np.cumsum(np.where(np.isfinite(ascending), added, 0.0))
    before_edge = np.concatenate([[0.0], running])[groups.starts]
    kept = (running - groups.repeat(before_edge) <= 1.0) & np.isfinite(ascending)
    kept[groups.starts + groups.counts - 1] = False  # an infeasible edge has at least one, whatever the rounding
    blocks = np.empty(len(need), dtype=bool)
    blocks[by_need] = ~kept
    blocks &= ~groups.repeat(has_plan)
    return groups.restore(blocks)


def _beyond_the_group(problem: PlanProblem, by_need: Array, ascending: Array) -> Array:
    """Returns the needs less that of the member of the same group that comes before, in this order."""
    assert problem.turns is not None
    members = problem.turns.members
    group = problem.groups.arrange(members.spread(np.arange(members.num_edges)))[by_need]
    in_groups = np.argsort(group, kind="stable")
    before = np.concatenate([[0.0], ascending[in_groups][:-1]])
    before[members.starts] = 0.0
    added = np.empty_like(ascending)
    with np.errstate(invalid="ignore"):
        added[in_groups] = ascending[in_groups] - before
    return added


def min_deadline_s(problem: PlanProblem, weights: Array | None = None) -> Array:
    """Returns the smallest common deadline with which each edge carries `weights`, by default W(ρ_max).  [num_edges]

    With A = (q̂ W + e) / r and d = a W + x, it is the root of h(T) = Σ A / (T − d) = 1 right of every d. 1/h is concave
    and increasing, also where h sums the largest terms of groups, so Newton on it rises to the root from
    T₀ = max(d + A) without ever passing it. The last ulps are then walked upward until the planner itself agrees, so
    that the answer always has a plan.
    """
    groups = problem.groups
    weights = problem.smallest_model_weights if weights is None else weights
    compute_s = groups.arrange(problem.seconds_per_weight * weights + problem.extra_seconds)
    bits = uplink_bits(problem, weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        uplink_s = bits / problem.full_band_rate_bps
    uplink_s = groups.arrange(np.where(bits > 0.0, uplink_s, 0.0))

    deadline = np.maximum.reduceat(compute_s + uplink_s, groups.starts)
    sends = uplink_s > 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(_MAX_NEWTON_STEPS):
            left_s = groups.repeat(deadline) - compute_s
            need = np.where(sends, uplink_s / left_s, 0.0)
            fall = np.where(sends, need / left_s, 0.0)
            if problem.turns is None:
                total, slope = groups.sum_arranged(need), groups.sum_arranged(fall)
            else:
                need = groups.restore(need)
                total, slope = problem.turns.spent(need), problem.turns.slowest(need, groups.restore(fall))
            step = np.where(total > 1.0, total * (total - 1.0) / slope, 0.0)
            raised = deadline + np.where(np.isfinite(step), step, 0.0)
            if np.array_equal(raised, deadline):
                break
            deadline = raised
    if problem.slice_bandwidth_hz is not None:
        deadline = _slice_deadline_s(problem, weights, deadline)
    return _walked_up_to_feasible(problem, weights, deadline)


def _slice_deadline_s(problem: PlanProblem, weights: Array, linear_s: Array) -> Array:
    """Returns the smallest deadline where noise is that of the slice; at most `linear_s`, that of linear rates.

    h(T) = Σ b(R), R = (q̂ W + e) / (T − d), falls about as 1/T: Newton on 1/h finds the root in a few steps, kept
    between the latency at full bandwidth and `linear_s`.
    """
    groups = problem.groups
    bits, compute_s = uplink_bits(problem, weights), problem.seconds_per_weight * weights + problem.extra_seconds
    snr = snr_of_rate(problem.full_band_rate_bps, problem.slice_bandwidth_hz)
    band, sends = np.asarray(problem.slice_bandwidth_hz) / np.log(2.0), bits > 0.0
    v = None
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        low = groups.max(compute_s + np.where(sends, bits / problem.full_band_rate_bps, 0.0))
        high = deadline = linear_s
        for _ in range(_MAX_NEWTON_STEPS):
            left_s = groups.spread(deadline) - compute_s
            part = bits / (left_s * band * snr)
            reachable = (part > 0.0) & (part < 1.0)
            v = nats_of_part(np.where(reachable, part, 0.5), v)
            share = np.where(reachable, share_of_nats(v, snr), np.where(sends, np.inf, 0.0))
            fall = np.where(sends, bits / (left_s**2 * band * growth(v)), 0.0)
            total, slope = groups.sum(share), groups.sum(fall)
            over = total - (1.0 - 2.0 * ROUNDING_MARGIN)
            low, high = np.where(over > 0.0, deadline, low), np.where(over <= 0.0, deadline, high)
            nearer = deadline + total * over / slope
            is_inside = (nearer >= low) & (nearer <= high)
            nearer = np.where(is_inside, nearer, 0.5 * (low + high))
            step = np.abs(nearer - deadline)
            close = np.where(is_inside, _SETTLED, ROUNDING_MARGIN) * deadline  # Newton's error is of the step's square
            deadline = np.where(np.isfinite(nearer), nearer, deadline)
            if np.all(~np.isfinite(nearer) | (step <= close)):
                break
    return deadline


def _walked_up_to_feasible(problem: PlanProblem, weights: Array, deadline: Array) -> Array:
    growth = ROUNDING_MARGIN
    possible = np.isfinite(deadline) & (deadline > 0.0)
    trial = np.where(possible, deadline, 1.0)
    while growth < 1e-6:
        need = share_for_weights(problem, weights, problem.groups.spread(trial))
        short = possible & (problem.spent(need) > 1.0)
        if not short.any():
            break
        trial = np.where(short, trial * (1.0 + growth), trial)
        growth *= 2.0
    return np.where(possible, trial, deadline)
