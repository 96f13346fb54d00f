"""How bandwidth buys weights within the deadline: Theorem 2 read in both directions.

With W the weights a device keeps, Eq. (26) is W (a + q̂ / (b r)) ≤ T_th. Solved for W it gives the largest
model a share can carry, hence the smallest ρ of Eqs. (31) and (35); solved for b, the smallest share a
model needs. All functions broadcast and stay finite-safe: a model that cannot meet the deadline at any
bandwidth needs an infinite share.
"""

from __future__ import annotations

import numpy as np

from airprune.channel import uplink_rate_bps
from airprune.latency import device_latency_s, kept_weights
from airprune.planning.problem import PlanProblem

Array = np.ndarray

# One part in 2⁵⁰: the slack that rounding may eat without a plan breaking its deadline or its budget.
ROUNDING_MARGIN = 4 * np.finfo(np.float64).eps


def share_for_weights(problem: PlanProblem, weights: Array, deadline_s: Array | None = None) -> Array:
    """b = q̂ W / (r (T_th − a W)): the smallest share with which `weights` meet the deadline (the problem's own)."""
    deadline_s = problem.deadline_s if deadline_s is None else deadline_s
    time_left_s = deadline_s - problem.seconds_per_weight * weights
    bits = problem.bits_per_weight * weights
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = bits / (problem.full_band_rate_bps * time_left_s) * (1.0 + ROUNDING_MARGIN)
    share = np.where((time_left_s <= 0.0) | (problem.full_band_rate_bps <= 0.0), np.inf, share)
    return np.where(weights <= 0.0, 0.0, share)


def weights_for_share(problem: PlanProblem, share: Array) -> Array:
    """W = T_th b r / (a b r + q̂): the largest model that meets the deadline with `share`."""
    rate_bps = share * problem.full_band_rate_bps
    return problem.deadline_s * rate_bps / (problem.seconds_per_weight * rate_bps + problem.bits_per_weight)


def unclipped_ratio_for_share(problem: PlanProblem, share: Array) -> Array:
    """Eq. (35) to the letter: ρ = 1 − (W(b) − W_conv) / W_fully, wherever it falls.

    Negative where the share carries more than the whole model, above 1 where not even the convolutions fit.
    """
    spare_weights = weights_for_share(problem, share) - problem.conv_weights
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 1.0 - spare_weights / problem.fc_weights
    return np.where(problem.fc_weights > 0.0, ratio, np.where(spare_weights >= 0.0, 0.0, np.inf))


def ratio_for_share(problem: PlanProblem, share: Array) -> Array:
    """Eq. (31): the smallest ρ ≥ ρ_min with which `share` meets the deadline; may exceed ρ_max.

    Where rounding would leave the latency an ulp above the deadline, ρ is raised by the few ulps that bring
    it back, since a plan must hold exactly as it is printed.
    """
    ratio = np.maximum(unclipped_ratio_for_share(problem, share), problem.min_pruning_ratio)
    late = latency_s(problem, share, ratio) > problem.deadline_s
    return np.where(late, _ulps_above(ratio, problem), ratio)


def _ulps_above(ratio: Array, problem: PlanProblem) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        step = ROUNDING_MARGIN * np.maximum(1.0, problem.conv_weights / problem.fc_weights)
    raised = ratio + np.where(np.isfinite(step), step, 0.0)
    # A ratio within the margin of ρ_max has arrived there; only a real excess is worth reporting.
    return np.where(ratio <= problem.max_pruning_ratio, np.minimum(raised, problem.max_pruning_ratio), ratio)


def latency_s(problem: PlanProblem, share: Array, ratio: Array) -> Array:
    """Eqs. (14)–(15): compute plus uplink time of each device."""
    return device_latency_s(
        kept_weights(ratio, conv_weights=problem.conv_weights, fc_weights=problem.fc_weights),
        seconds_per_weight=problem.seconds_per_weight,
        rate_bps=uplink_rate_bps(share, problem.full_band_rate_bps),
        bits_per_weight=problem.bits_per_weight,
    )


def peak_root(problem: PlanProblem) -> Array:
    """s = √(c T_th q̂ r / W_fully): the pruning that band saves, −c dρ/db, is (s / (a r b + q̂))².

    s² W_fully² is Theorem 3's numerator (V1 V4 + V2 V3) r, because V1 V4 + V2 V3 = q̂ W_fully T_th identically.
    Infinite for a model with nothing to prune.
    """
    with np.errstate(divide="ignore"):
        return np.sqrt(
            problem.objective_weight
            * problem.deadline_s
            * problem.bits_per_weight
            * problem.full_band_rate_bps
            / problem.fc_weights
        )
