"""Finds the fairest plan: the largest pruning ratio of an edge is as small as possible."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np

from airprune.planning.feasibility import min_deadline_s
from airprune.planning.problem import PlanProblem
from airprune.planning.roots import bracketed_roots
from airprune.planning.schemes.base import Allocation, Scheme, status_of_box
from airprune.planning.tradeoff import rate_slope, ratio_for_share, share_for_weights
from airprune.wireless.latency import kept_weights

Array = np.ndarray

# A root search ends where the bandwidth is spent this nearly; most of its last steps come within so many units in the
# last place of the ratio.
_NEAR, _ULPS = 1e-13, 256.0


class MinMax(Scheme):
    """Minimises the largest pruning ratio of each edge."""

    name = "min-max"
    summary = "fairest: the largest pruning ratio of each edge is as small as possible"
    takes_slices = True
    takes_groups = True

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Gives all devices of an edge one common ratio t, each within its own bounds: ρ = clip(t, ρ_min, ρ_max).

        The shares that ρ needs shrink as t grows, so the smallest t with Σ b ≤ 1 is found down to the last bit. The
        shadow price is −dt/dB: the fall of the largest ratio per unit of bandwidth.
        """
        groups = problem.groups
        common = _smallest_common(problem)
        ratio = _ratio(problem, common)
        share = share_for_weights(problem, _weights(problem, ratio))
        price = _price(problem, share, ratio, groups.spread(common))
        if problem.turns is not None:  # members that need less than their group has prune less
            share = np.minimum(problem.turns.longest(share), 1.0)  # more only on edges without a plan
            ratio = np.minimum(ratio, ratio_for_share(problem, share))
        return Allocation(
            share=share,
            ratio=ratio,
            status=status_of_box(problem, share_for_weights(problem, problem.smallest_model_weights)),
            shadow_price=price,
            min_deadline_s=min_deadline_s(problem),
        )


def _ratio(problem: PlanProblem, common: Array) -> Array:
    return np.clip(problem.groups.spread(common), problem.min_pruning_ratio, problem.max_pruning_ratio)


def _weights(problem: PlanProblem, ratio: Array) -> Array:
    return kept_weights(ratio, conv_weights=problem.conv_weights, fc_weights=problem.fc_weights)


def _smallest_common(problem: PlanProblem) -> Array:
    """Returns the smallest t with Σ b ≤ 1, or 1, of every edge: secants and bisection until no number is between.

    A secant lands within a few units in the last place of t, on either side; steps of so many units to both sides of it
    close the bracket. With slices, whose rates are rounded by many units themselves, t is within 512.  [num_edges]
    """
    near_enough = 0.0
    low = np.zeros(problem.groups.num_edges)
    at_low = _excess(problem, low)
    high = np.where(at_low <= 0.0, 0.0, 1.0)
    at_high = _excess(problem, high)
    low = np.where(at_high > 0.0, high, low)  # nothing fits
    if problem.slice_bandwidth_hz is not None:  # a sum costs several times that of linear rates: fewer of them
        near = bracketed_roots(partial(_excess, problem), low, high, ends=(at_low, at_high), small=_NEAR)
        for side in (-_ULPS, _ULPS):
            beside = near + side * np.spacing(near)
            excess, inside = _excess(problem, beside), (low < beside) & (beside < high)
            fits = inside & (excess <= 0.0)
            low, at_low = np.where(inside & ~fits, beside, low), np.where(inside & ~fits, excess, at_low)
            high, at_high = np.where(fits, beside, high), np.where(fits, excess, at_high)
        near_enough = 2.0 * _ULPS
    for step in itertools.count():
        middle = 0.5 * (low + high)
        if np.all((middle <= low) | (middle >= high) | (high - low <= near_enough * np.spacing(high))):
            return high
        if step % 3 < 2:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                secant = low + (high - low) * (at_low / (at_low - at_high))
                secant += (4.0 if step % 3 else -4.0) * np.spacing(secant)
            middle = np.where((low < secant) & (secant < high), secant, middle)
        excess = _excess(problem, middle)
        fits = excess <= 0.0
        low, at_low = np.where(fits, low, middle), np.where(fits, at_low, excess)
        high, at_high = np.where(fits, middle, high), np.where(fits, excess, at_high)
    raise AssertionError("never comes here")


def _excess(problem: PlanProblem, common: Array) -> Array:
    """Returns Σ b − 1 on every edge."""
    return problem.spent(share_for_weights(problem, _weights(problem, _ratio(problem, common)))) - 1.0


def _price(problem: PlanProblem, share: Array, ratio: Array, common: Array) -> Array:
    """Returns 1 / Σ db/dκ over the devices that follow t; db/dκ = W_fully (q̂ D + a e) / (R' (D − a W)²)."""
    left_s = problem.time_for_weights_s - problem.seconds_per_weight * _weights(problem, ratio)
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = problem.bits_per_weight * problem.fc_weights * problem.time_for_weights_s
        cost = cost + problem.fc_weights * problem.seconds_per_weight * problem.fixed_bits
        cost = cost / (rate_slope(problem, share) * left_s**2)
    follows = (ratio == common) & (common > 0.0)
    cost = np.where(follows & np.isfinite(cost), cost, 0.0)
    total = problem.groups.sum(cost) if problem.turns is None else problem.turns.slowest(share, cost)
    return np.where(total > 0.0, 1.0 / np.where(total > 0.0, total, 1.0), 0.0)
