"""Random fleets and the yardsticks that planner tests share. Nothing here calls the planner's own formulas."""

from __future__ import annotations

import dataclasses

import numpy as np

import airprune as ap


def paper_fleet(**changes) -> ap.PlanProblem:
    """The five devices 130–170 m away for which the printed Theorem 3 goes negative."""
    distance_km = np.array([0.130, 0.140, 0.150, 0.160, 0.170])
    snr_db = 28.0 - (128.1 + 37.6 * np.log10(distance_km)) + 110.0
    rate = 20e6 * np.log2(1.0 + 10.0 ** (snr_db / 10.0))
    return ap.PlanProblem(**{"full_band_rate_bps": rate, "seconds_per_weight": 2 * 20 / 3e9, **changes})


def random_fleet(
    rng: np.random.Generator, *, num_devices: int, num_edges: int = 1, reserved: bool = False
) -> ap.PlanProblem:
    """Six decades of a and r, mixed model sizes and weights, tight and loose boxes, a deadline with a plan.

    With `reserved`, most devices send fixed bits, some of them nothing else, and half need extra seconds.
    """
    n = num_devices
    seconds_per_weight = 10.0 ** rng.uniform(-12, -6, n)
    seconds_per_weight[rng.random(n) < 0.1] = 0.0
    low = rng.uniform(0.0, 0.5, n) * (rng.random(n) < 0.5)
    high = np.where(rng.random(n) < 0.3, low + 1e-3 * rng.random(n), rng.uniform(0.5, 1.0, n))
    problem = ap.PlanProblem(
        full_band_rate_bps=10.0 ** rng.uniform(5, 11, n),
        seconds_per_weight=seconds_per_weight,
        edge=rng.integers(0, num_edges, n),
        bits_per_weight=rng.choice([8.0, 16.0, 32.0, 64.0], n),
        conv_weights=np.round(10.0 ** rng.uniform(2, 6, n)) * (rng.random(n) < 0.9),
        fc_weights=np.round(10.0 ** rng.uniform(2, 6, n)),
        min_pruning_ratio=low,
        max_pruning_ratio=high,
        objective_weight=rng.choice([np.ones(n), rng.uniform(0.1, 10.0, n)]),
    )
    if reserved:
        problem = with_reserves(rng, problem)
    smallest = ap.plan(problem).min_deadline_s
    stretch = 1.0 + 10.0 ** rng.uniform(-6, 1, len(smallest))
    deadline = problem.groups.spread(np.where(smallest > 0, smallest, 1e-3) * stretch)
    return dataclasses.replace(problem, deadline_s=deadline)


def with_reserves(rng: np.random.Generator, problem: ap.PlanProblem) -> ap.PlanProblem:
    """Fixed bits from a thousandth to a thousand times those of the weights, extra seconds of the deadline's size."""
    n = problem.num_devices
    weight_bits = problem.bits_per_weight * (problem.conv_weights + problem.fc_weights)
    fixed_bits = np.ceil(10.0 ** rng.uniform(-3, 3, n) * weight_bits * (rng.random(n) < 0.8))
    only_fixed = (rng.random(n) < 0.1) & (fixed_bits > 0)
    problem = dataclasses.replace(
        problem, fixed_bits=fixed_bits, bits_per_weight=np.where(only_fixed, 0.0, problem.bits_per_weight)
    )
    longest = ap.plan(problem).min_deadline_s.max()
    return dataclasses.replace(problem, extra_seconds=rng.uniform(0.0, 3.0, n) * longest * (rng.random(n) < 0.5))


def kept_weights(problem: ap.PlanProblem, ratio: np.ndarray) -> np.ndarray:
    return problem.conv_weights + (1.0 - ratio) * problem.fc_weights


def share_needed(problem: ap.PlanProblem, ratio: np.ndarray) -> np.ndarray:
    """b of Eq. (26) with equality, written out once more."""
    weights = kept_weights(problem, ratio)
    left_s = problem.deadline_s - problem.extra_seconds - problem.seconds_per_weight * weights
    bits = problem.bits_per_weight * weights + problem.fixed_bits
    with np.errstate(divide="ignore"):
        return np.where(left_s > 0, bits / (problem.full_band_rate_bps * left_s), np.inf)


def kkt_residual(plan: ap.Plan) -> float:
    """The worst relative violation of the optimality conditions over all devices and edges."""
    p, b = plan.problem, plan.bandwidth_share
    bend = (p.deadline_s - p.extra_seconds) * p.bits_per_weight + p.seconds_per_weight * p.fixed_bits
    with np.errstate(invalid="ignore"):
        gradient = (p.objective_weight * bend * p.full_band_rate_bps / p.fc_weights) / (
            p.seconds_per_weight * p.full_band_rate_bps * b + p.bits_per_weight
        ) ** 2
    gradient = np.where(bend > 0, gradient, 0.0)  # weights that cost neither time nor bits
    edge = np.searchsorted(p.edge_ids, p.edge)
    price = plan.shadow_price[edge]
    at_low = b <= share_needed(p, p.max_pruning_ratio) * (1 + 1e-13)
    at_high = b >= np.minimum(share_needed(p, p.min_pruning_ratio), 1.0) * (1 - 1e-13)
    excess = (gradient - price) / np.maximum(np.maximum(gradient, price), 1e-300)
    stationarity = np.where(at_low & at_high, 0, np.where(at_low, excess, np.where(at_high, -excess, np.abs(excess))))
    used = np.bincount(edge, b)
    slackness = np.where(plan.shadow_price > 0, np.abs(used - 1.0), np.maximum(used - 1.0, 0.0))
    too_long = plan.latency_s / p.deadline_s - 1.0
    wasted = np.where(plan.pruning_ratio > p.min_pruning_ratio, -too_long, 0.0)
    wasted = np.where(at_low, 0.0, wasted)
    return float(max(stationarity.max(), slackness.max(), too_long.max(), wasted.max()))
