"""Finds the smallest deadline or bandwidth that keeps pruning below a target.

Under every scheme that adapts, each single ratio falls (or stays) when the bandwidth grows: raising r can only lower
μ = λ/r in the stationarity condition c (D − a W)² = μ W_fully (q̂ D + a e), since a larger μ would shrink every share
below a budget that was already met. So it does when the deadline grows, if all devices need the same extra seconds: a
longer D moves bandwidth only from devices with many fixed bits, and takes less from them than the time itself gives. So
mean and maximum are monotone and bracketing is exact.

With unequal extra seconds a longer deadline may move bandwidth to a device that had hardly any time left. The scheme's
own objective still falls, hence the mean of `optimal` with equal objective weights; for the rest, the result is a value
that satisfies the target and a neighbour below it that does not, but perhaps not the smallest such value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from airprune.checks import one_number
from airprune.errors import Infeasible, InvalidValue, UnknownName
from airprune.planning.plan import Plan
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes import plan as plan_by
from airprune.planning.schemes import scheme_named
from airprune.planning.schemes.base import equal_share_latency_s
from airprune.text import shown

Statistic = Literal["mean", "max"]
STATISTICS: dict[str, Callable[[np.ndarray], float]] = {
    "mean": lambda x: float(np.mean(x)),
    "max": lambda x: float(np.max(x)),
}

# Beyond a quadrillion times the bandwidth, uplink time is zero to double precision.
_UNLIMITED = 1e15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """The smallest value that keeps pruning below the target, and the plan with it.

    The value itself satisfies the target; the value smaller by `relative_tolerance` does not.
    """

    value: float
    plan: Plan


def smallest_deadline_s(
    problem: PlanProblem,
    *,
    target_pruning: float,
    statistic: Statistic = "mean",
    scheme: str = "optimal",
    relative_tolerance: float = 1e-9,
) -> Answer:
    """Returns the smallest common deadline with which the mean (or largest) ratio of all devices is ≤ the target."""
    _check_target(problem, target_pruning, statistic, relative_tolerance)

    def plan_at(deadline_s: float) -> Plan:
        return plan_by(dataclasses.replace(problem, deadline_s=deadline_s), scheme)

    excess = _excess_over(target_pruning, statistic)
    shortest = float(np.max(plan_by(problem, scheme).min_deadline_s))
    if not math.isfinite(shortest):
        raise Infeasible("No deadline has a plan: a device has no uplink rate; remove it or raise its SNR.")
    # With this much time every device affords its largest model on an equal share.
    longest = float(np.max(equal_share_latency_s(problem, problem.largest_model_weights))) * (1 + 1e-12)
    if scheme_named(scheme).needs_limits:  # unless energy is what is short, and more time saves it
        longest = _long_enough(lambda x: excess(plan_at(x)), longest)
    if shortest > 0.0 and excess(plan_at(shortest)) <= 0.0:
        return Answer(value=shortest, plan=plan_at(shortest))
    low = shortest if shortest > 0.0 else longest * 1e-15
    value = _smallest(lambda x: excess(plan_at(x)), low, max(longest, low), relative_tolerance)
    if value is None:
        raise Infeasible(f"Scheme {scheme!r} has no usable plan at any deadline; use scheme 'optimal'.")
    return Answer(value=value, plan=plan_at(value))


def smallest_bandwidth_hz(
    problem: PlanProblem,
    *,
    bandwidth_hz: float,
    target_pruning: float,
    statistic: Statistic = "mean",
    scheme: str = "optimal",
    relative_tolerance: float = 1e-9,
) -> Answer:
    """Returns the smallest bandwidth per edge with which the mean (or largest) ratio of all devices is ≤ the target.

    `bandwidth_hz` is the one behind `problem.full_band_rate_bps`; rates scale with it, as in Eq. (10) with the
    noise power fixed.
    """
    _check_target(problem, target_pruning, statistic, relative_tolerance)
    one_number("bandwidth_hz", bandwidth_hz, above=0.0, at_most=1e30, way_out="Example: 20e6 for 20 MHz.")

    def plan_at(factor: float) -> Plan:
        changes: dict[str, Any] = {"full_band_rate_bps": problem.full_band_rate_bps * factor}
        if problem.interference is not None:
            changes["interference"] = problem.interference.wider(factor)
        if problem.slice_bandwidth_hz is not None:
            changes["slice_bandwidth_hz"] = problem.slice_bandwidth_hz * factor
        if problem.limits is not None:
            wider = problem.limits.bandwidth_hz * factor
            changes["limits"] = dataclasses.replace(problem.limits, bandwidth_hz=wider)
        return plan_by(dataclasses.replace(problem, **changes), scheme)

    excess = _excess_over(target_pruning, statistic)
    unlimited = plan_at(_UNLIMITED)
    if excess(unlimited) > 0.0:
        reached = STATISTICS[statistic](unlimited.pruning_ratio)
        left = "a device is too slow or has no uplink rate" if math.isnan(reached) else f"it stays at {reached:.6g}"
        raise Infeasible(
            f"No bandwidth brings the {statistic} pruning ratio to {target_pruning:g} within this deadline: "
            f"{left} even with unlimited bandwidth; allow a longer deadline or a higher target."
        )
    low = high = 1.0
    while excess(plan_at(high)) > 0.0:
        low, high = high, high * 4.0
    while low == high or excess(plan_at(low)) <= 0.0:
        low, high = low / 4.0, low
        if low < 1.0 / _UNLIMITED:
            return Answer(value=0.0, plan=plan_at(high))
    factor = _smallest(lambda x: excess(plan_at(x)), low, high, relative_tolerance)
    assert factor is not None  # `high` satisfies the target
    return Answer(value=factor * bandwidth_hz, plan=plan_at(factor))


def _long_enough(excess: Callable[[float], float], deadline_s: float) -> float:
    for _ in range(100):
        if excess(deadline_s) <= 0.0:
            return deadline_s
        deadline_s *= 2.0
    raise Infeasible("No deadline reaches the target within the energy budget; allow more energy or a higher target.")


def _check_target(problem: PlanProblem, target: float, statistic: str, tolerance: float) -> None:
    if not isinstance(problem, PlanProblem):
        raise InvalidValue("problem", "must be a PlanProblem", shown(problem))
    if not isinstance(statistic, str) or statistic not in STATISTICS:
        raise UnknownName("statistic", statistic, STATISTICS)
    one_number("target_pruning", target, at_least=0.0, at_most=1.0, way_out="Example: 0.5.")
    one_number("relative_tolerance", tolerance, at_least=1e-15, at_most=1.0, way_out="Example: 1e-9.")
    least = STATISTICS[statistic](problem.min_pruning_ratio)
    if target < least:
        raise InvalidValue(
            "target_pruning", f"must be at least the {statistic} of min_pruning_ratio, {least:g}", target
        )


def _excess_over(target: float, statistic: str) -> Callable[[Plan], float]:
    def excess(plan: Plan) -> float:
        value = STATISTICS[statistic](plan.pruning_ratio)
        return math.inf if plan.failed.any() or math.isnan(value) else value - target

    return excess


def _smallest(excess: Callable[[float], float], low: float, high: float, tolerance: float) -> float | None:
    """Returns the smallest x in (low, high] with excess(x) ≤ 0, to a relative tolerance; None if there is none.

    Secant steps while they at least halve the bracket, geometric bisection otherwise. Always returns the upper
    end of the bracket, which has been seen to satisfy.
    """
    at_low, at_high = excess(low), excess(high)
    if at_high > 0.0:
        return None
    if at_low <= 0.0:
        return low
    bisect = False
    while high > low * (1.0 + tolerance):
        width = high - low
        x = math.sqrt(low * high)
        if not bisect and math.isfinite(at_low) and at_low > at_high:
            secant = low + width * at_low / (at_low - at_high)
            margin = 0.25 * tolerance * high
            x = min(max(secant + margin, low + margin), high - margin)
        at_x = excess(x)
        if at_x <= 0.0:
            high, at_high = x, at_x
        else:
            low, at_low = x, at_x
        bisect = high - low > 0.5 * width
    return high
