"""Finds the deadline with the least expected time to accuracy, for schemes that choose compression levels, or work.

An edge round with R bits per weight takes c + s R seconds, and N(R) ≈ N∞ (1 + κ / R) rounds are needed: fewer bits
lose more of each update. The product is least at R* = √(κ c / s). Devices of different rates have different R, so the
deadline is found on the plans themselves: of the deadlines with which all devices of all edges could send with one of
the compression levels, and some between them, the one whose plan has the least latency × mean of (1 + κ / R_n). What a
round takes beside, such as a charged downlink, is part of c.

A scheme that chooses work knows the progress of its plans: of many deadlines, the one with the most progress per second
is taken, among those with which enough devices train every layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from airprune.planning.feasibility import min_deadline_s
from airprune.planning.plan import Plan
from airprune.planning.problem import PlanProblem

Array = np.ndarray

# Deadlines that are tried between the neighbours of the best one.
_BETWEEN = 8
# Deadlines that are tried first where work is chosen.
_COARSE = 24

FIRST_KAPPA = 0.25
"""κ before anything is measured."""


def auto_deadline_s(
    problem: PlanProblem,
    plan: Callable[[PlanProblem], Plan],
    kappa: float,
    *,
    fair: bool = False,
    beside_s: Array | float = 0.0,
) -> float:
    """Returns the deadline with the least time to accuracy, for the rates and compute times of this round.

    Args:
      problem: with a ladder; devices without uplink are ignored. If no device has one, its own deadline is returned.
      plan: a scheme that chooses compression levels.
      kappa: κ.
      fair: go by the device with the fewest bits instead of the mean.
      beside_s: what a round takes at each device's edge beside its latency.  [num_devices] or a number
    """
    more_s: Array = np.broadcast_to(beside_s, problem.num_devices)
    reachable = problem.full_band_rate_bps > 0.0
    if not reachable.any():
        return float(np.max(problem.deadline_s))
    if not reachable.all():
        problem, more_s = problem.subset(reachable), more_s[reachable]

    def cost(deadline_s: float) -> float:
        return _cost(plan(dataclasses.replace(problem, deadline_s=deadline_s)), kappa, fair, more_s)

    assert problem.ladder is not None
    levels = problem.ladder.bits_per_weight[problem.ladder.hull]
    deadlines_s = [deadline_for_bits_s(problem, bits) for bits in levels]
    costs = [cost(deadline_s) for deadline_s in deadlines_s]
    best = int(np.argmin(costs))
    ends_s = deadlines_s[max(best - 1, 0)], deadlines_s[min(best + 1, len(deadlines_s) - 1)]
    nearby = {cost(deadline_s): deadline_s for deadline_s in np.geomspace(*ends_s, _BETWEEN + 2)[1:-1].tolist()}
    return nearby[min(nearby)] if min(nearby) < costs[best] else deadlines_s[best]


def auto_work_deadline_s(
    problem: PlanProblem, draft: Callable[[PlanProblem], Plan], *, coverage: int = 0, beside_s: Array | float = 0.0
) -> float:
    """Returns the deadline with the most progress per second, Σ v / (time of the slowest edge's round).

    Args:
      problem: with work to choose; devices without uplink are ignored.
      draft: a scheme that chooses work.
      coverage: devices of every edge that must train every layer.
      beside_s: what a round takes at each device's edge beside its latency.  [num_devices] or a number
    """
    work = problem.work
    reachable = problem.full_band_rate_bps > 0.0
    more_s: Array = np.broadcast_to(beside_s, problem.num_devices)[reachable]
    if work is None or not reachable.any():
        return float(np.max(problem.deadline_s))
    if not reachable.all():
        problem = problem.subset(reachable)
        work = problem.work
        assert work is not None

    def progress(deadline_s: float) -> float:
        plan = draft(dataclasses.replace(problem, deadline_s=deadline_s))
        assert plan.value is not None and plan.first_trained is not None
        trains_all = problem.groups.sum((plan.first_trained == 0).astype(np.int64))
        if plan.failed.any() or np.any(trains_all < np.minimum(coverage, problem.groups.counts)):
            return 0.0
        return float(plan.value.sum() / (plan.latency_s + more_s).max())

    least_s = float(np.max(draft(problem).min_deadline_s))
    return _best_between(progress, least_s, float(np.max(work.seconds(work.most_steps))) + least_s)


def auto_size_deadline_s(
    problem: PlanProblem, draft: Callable[[PlanProblem], Plan], *, beside_s: Array | float = 0.0
) -> float:
    """Returns the deadline with the most value per second, Σ v / (time of the slowest edge's round).

    Args:
      problem: with sizes to choose from; devices without uplink are ignored.
      draft: a scheme that chooses among them.
      beside_s: what a round takes at each device's edge beside its latency.  [num_devices] or a number
    """
    reachable = problem.full_band_rate_bps > 0.0
    more_s: Array = np.broadcast_to(beside_s, problem.num_devices)[reachable]
    if problem.sizes is None or not reachable.any():
        return float(np.max(problem.deadline_s))
    problem = problem.subset(reachable)

    def value(deadline_s: float) -> float:
        plan = draft(dataclasses.replace(problem, deadline_s=deadline_s))
        assert plan.value is not None
        return 0.0 if plan.failed.any() else float(plan.value.sum() / (plan.latency_s + more_s).max())

    largest = problem.fixed_weights + problem.sizes[-1]
    bits = problem.bits_per_weight if problem.ladder is None else problem.ladder.bits_per_weight[-1]
    most = dataclasses.replace(problem, bits_per_weight=bits, ladder=None, sizes=None)
    least_s = float(np.max(draft(problem).min_deadline_s))
    return _best_between(value, least_s, float(np.max(min_deadline_s(most, largest))))


def _best_between(value: Callable[[float], float], least_s: float, most_s: float) -> float:
    """Returns the deadline with the largest value, of many between two; the longest if none has any."""
    tried_s = np.geomspace(least_s, most_s, _COARSE)
    found = [value(deadline_s) for deadline_s in tried_s.tolist()]
    best = int(np.argmax(found))
    if found[best] == 0.0:
        return most_s
    ends_s = tried_s[max(best - 1, 0)], tried_s[min(best + 1, _COARSE - 1)]
    nearby_s = np.geomspace(*ends_s, _BETWEEN + 2)[1:-1]
    near = [value(deadline_s) for deadline_s in nearby_s.tolist()]
    return float(nearby_s[np.argmax(near)] if max(near) > found[best] else tried_s[best])


def deadline_for_bits_s(problem: PlanProblem, bits_per_weight: float) -> float:
    """Returns the smallest deadline with which all devices of all edges send so many bits per weight."""
    changed = dataclasses.replace(problem, bits_per_weight=bits_per_weight)
    return float(np.max(min_deadline_s(changed, problem.largest_model_weights)))


def _cost(plan: Plan, kappa: float, fair: bool, beside_s: Array) -> float:
    """Returns the duration of the slowest edge's round × rounds needed, relative to rounds without loss."""
    assert plan.bits_per_weight is not None
    planned = np.isfinite(plan.latency_s)
    if not planned.any():
        return np.inf
    slowdown = 1.0 + kappa / plan.bits_per_weight[planned]
    excluded = len(planned) / np.count_nonzero(planned)
    slowest_s = np.max(plan.latency_s[planned] + beside_s[planned])
    return float(slowest_s * (np.max(slowdown) if fair else np.mean(slowdown)) * excluded)


def measured_kappa(bits_per_weight: Array, error: Array) -> float:
    """Returns κ = mean of R E / (1 − E): error feedback delivers the loss E / (1 − E) rounds later on average.

    If a compressor delivers the share 1 − E in every round, the rest waits 1/(1 − E) − 1 rounds.

    Args:
      bits_per_weight: R_n of the devices that sent.  [num_devices]
      error: E_n, the share that each compressor lost.  [num_devices]
    """
    kept = np.clip(1.0 - error, 0.05, 1.0)
    return float(np.mean(bits_per_weight * (1.0 / kept - 1.0)))
