"""Converts bandwidth shares to weights within the deadline and back: Theorem 2 in both directions.

With W the weights a device keeps, Eq. (26) is a W + (q̂ W + e) / (b r) ≤ D, where e are the fixed bits and
D = T_th − x is the time that the extra seconds leave. Solved for W it gives the largest model a share can
carry, hence the smallest ρ of Eqs. (31) and (35); solved for b, the smallest share a model needs. All functions
broadcast and stay finite-safe: a model that cannot meet the deadline at any bandwidth needs an infinite share.
With e = x = 0 they are the paper's.
"""

from __future__ import annotations

import numpy as np

from airprune.planning.limits import full_band_rate_at, slowdown
from airprune.planning.problem import PlanProblem
from airprune.wireless.channel import uplink_rate_bps
from airprune.wireless.latency import device_latency_s, kept_weights
from airprune.wireless.slice_noise import marginal_rate_bps, slice_share

Array = np.ndarray

# One part in 2⁵⁰: the slack that rounding may eat without a plan breaking its deadline or its budget.
ROUNDING_MARGIN = 4 * np.finfo(np.float64).eps


def uplink_bits(problem: PlanProblem, weights: Array) -> Array:
    """Returns q̂ W + e, the bits that a device sends."""
    bits = np.asarray(problem.bits_per_weight * weights)
    bits += problem.fixed_bits  # in place: a bisection over a million devices computes this at every step
    return bits


def rate_of_share(problem: PlanProblem, share: Array) -> Array:
    """Returns R(b), the uplink rate of a share: b r, Eq. (10), unless noise is that of the slice."""
    return uplink_rate_bps(share, problem.full_band_rate_bps, problem.slice_bandwidth_hz)


def rate_slope(problem: PlanProblem, share: Array) -> Array:
    """Returns R'(b): r, unless noise is that of the slice."""
    if problem.slice_bandwidth_hz is None:
        return problem.full_band_rate_bps
    return marginal_rate_bps(share, problem.full_band_rate_bps, problem.slice_bandwidth_hz)


def share_for_weights(problem: PlanProblem, weights: Array, deadline_s: Array | None = None) -> Array:
    """Returns b = (q̂ W + e) / (r (D − a W)), the smallest share with which `weights` meet the deadline.

    Where noise is that of the slice, the b with R(b) = (q̂ W + e) / (D − a W).
    """
    time_s = problem.time_for_weights_s if deadline_s is None else deadline_s - problem.extra_seconds
    time_left_s = time_s - problem.seconds_per_weight * weights
    bits = uplink_bits(problem, weights)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if problem.slice_bandwidth_hz is None:
            share = bits / (problem.full_band_rate_bps * time_left_s) * (1.0 + ROUNDING_MARGIN)
        else:
            share = slice_share(bits / time_left_s, problem.full_band_rate_bps, problem.slice_bandwidth_hz)
    share = np.where((time_left_s <= 0.0) | (problem.full_band_rate_bps <= 0.0), np.inf, share)
    free = bits <= 0.0
    free &= time_left_s >= 0.0
    return np.where(free, 0.0, share)


def weights_for_share(problem: PlanProblem, share: Array) -> Array:
    """Returns W = (D b r − e) / (a b r + q̂), the largest model that meets the deadline with `share`.

    Negative where not even the fixed bits arrive in time. Where neither training nor sending grows with the weights,
    a share carries any model or none.
    """
    rate_bps = rate_of_share(problem, share)
    spare_bits = problem.time_for_weights_s * rate_bps - problem.fixed_bits
    bits_a_weight = problem.seconds_per_weight * rate_bps + problem.bits_per_weight
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = spare_bits / bits_a_weight
    return np.where((spare_bits == 0.0) & (bits_a_weight == 0.0), np.inf, weights)


def unclipped_ratio_for_share(problem: PlanProblem, share: Array) -> Array:
    """Returns ρ = 1 − (W(b) − W_conv) / W_fully, Eq. (35) to the letter, within its bounds or not.

    Negative where the share carries more than the whole model, above 1 where not even the convolutions fit.
    """
    spare_weights = weights_for_share(problem, share) - problem.conv_weights
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 1.0 - spare_weights / problem.fc_weights
    return np.where(problem.fc_weights > 0.0, ratio, np.where(spare_weights >= 0.0, 0.0, np.inf))


def ratio_for_share(problem: PlanProblem, share: Array) -> Array:
    """Returns the smallest ρ ≥ ρ_min with which `share` meets the deadline, Eq. (31); may exceed ρ_max.

    Where rounding would leave the latency an ulp above the deadline, ρ is raised by the few ulps that bring
    it back, since a plan must hold exactly as it is printed.
    """
    ratio = np.maximum(unclipped_ratio_for_share(problem, share), problem.min_pruning_ratio)
    with np.errstate(invalid="ignore"):  # an infinite ratio says already that no model fits
        late = latency_s(problem, share, ratio) > problem.deadline_s
    return np.where(late, _ulps_above(ratio, problem, share), ratio)


def _ulps_above(ratio: Array, problem: PlanProblem, share: Array) -> Array:
    """Raises ρ by the rounding of T_th, which is worth ulps of W(b) + (e + x b r) / (a b r + q̂) weights."""
    rate_bps = rate_of_share(problem, share)
    with np.errstate(divide="ignore", invalid="ignore"):
        reserved = (problem.fixed_bits + problem.extra_seconds * rate_bps) / (
            problem.seconds_per_weight * rate_bps + problem.bits_per_weight
        )
        step = ROUNDING_MARGIN * np.maximum(1.0, (problem.conv_weights + reserved) / problem.fc_weights)
    raised = ratio + np.where(np.isfinite(step), step, 0.0)
    # A ratio within the margin of ρ_max has arrived there; only a real excess is worth reporting.
    return np.where(ratio <= problem.max_pruning_ratio, np.minimum(raised, problem.max_pruning_ratio), ratio)


def latency_s(
    problem: PlanProblem,
    share: Array,
    ratio: Array,
    *,
    cpu_hz: Array | None = None,
    power_w: Array | None = None,
    bits_per_weight: Array | None = None,
) -> Array:
    """Returns compute plus uplink time of each device, Eqs. (14)–(15), with the chosen clock, power and bits."""
    per_weight_s, extra_s, rate_bps = problem.seconds_per_weight, problem.extra_seconds, problem.full_band_rate_bps
    if cpu_hz is not None:
        per_weight_s, extra_s = (seconds * slowdown(problem, cpu_hz) for seconds in (per_weight_s, extra_s))
    if power_w is not None:
        rate_bps = full_band_rate_at(problem, power_w)
    return device_latency_s(
        kept_weights(ratio, conv_weights=problem.conv_weights, fc_weights=problem.fc_weights),
        seconds_per_weight=per_weight_s,
        rate_bps=uplink_rate_bps(share, rate_bps, problem.slice_bandwidth_hz),
        bits_per_weight=problem.bits_per_weight if bits_per_weight is None else bits_per_weight,
        fixed_bits=problem.fixed_bits,
        extra_seconds=extra_s,
    )


def peak_root(problem: PlanProblem) -> Array:
    """Returns s = √(c (D q̂ + a e) r / W_fully); the pruning that bandwidth saves, −c dρ/db, is (s / (a r b + q̂))².

    With e = x = 0, s² W_fully² is Theorem 3's numerator (V1 V4 + V2 V3) r, because V1 V4 + V2 V3 = q̂ W_fully T_th
    identically. Infinite for a model with nothing to prune, 0 where bandwidth carries no weights, NaN if D is negative.
    """
    weight = problem.objective_weight
    bend = weight * problem.time_for_weights_s * problem.bits_per_weight
    bend = bend + weight * problem.seconds_per_weight * problem.fixed_bits
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(bend * problem.full_band_rate_bps / problem.fc_weights)
