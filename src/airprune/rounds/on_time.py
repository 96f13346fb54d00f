"""On-time probabilities of planned devices where channels or compute times are by chance; what one more nine costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from airprune.errors import AirpruneError
from airprune.planning import PlanProblem
from airprune.planning.inverse import smallest_deadline_s
from airprune.rounds.first_round import FirstRound, links_of
from airprune.rounds.reserve import reserve_for
from airprune.wireless.channel import rician_k, uplink_rate_bps
from airprune.wireless.channels.base import link_rates_bps
from airprune.wireless.csi import chi_square

Array = np.ndarray

NINES = (0.9, 0.95, 0.99, 0.999)
_STEPS = 200  # of a bisection of the logarithm of a gain
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The plan of a round that is to be on time with a probability.

    Attributes:
      on_time: that probability; None: the plan counts on mean gains.
      served: devices on edges with a plan.
      mean_ratio, max_ratio: their pruning ratios at the given deadline; NaN if there are none.
      smallest_deadline_s: at which all edges have a plan; infinite if a device has no rate.
      same_pruning_s: deadline at which devices prune no more on average than as given; NaN where none is defined.
    """

    on_time: float | None
    served: int
    mean_ratio: float
    max_ratio: float
    smallest_deadline_s: float
    same_pruning_s: float


def on_time_probability(found: FirstRound) -> Array | None:
    """P(T_n <= T_th) of each planned device, given the estimate of its channel: over stragglers and true channels.

    None where neither is by chance, or where stragglers meet a scheme that chooses work or clocks. A plan that exceeds
    the deadline is on time if it takes no longer than planned. NaN on edges without a plan.  [num_devices]
    """
    events = found.experiment.scenario.events
    chance, is_given = events.straggler_probability, found.problem.work is None and found.problem.limits is None
    if (not chance and found.experiment.radio.knows_fading) or (chance and not is_given):
        return None
    beside_s = _sounding_s(found)
    usual_s = (found.compute_s - beside_s) / found.experiment.context.reserve.slowdown + beside_s
    limit_s = np.maximum(found.problem.deadline_s, usual_s + found.uplink_s) * (1.0 + _ROUNDING)
    probability = _link_suffices(found, limit_s - usual_s)
    if chance:
        slow_s = (usual_s - beside_s) * events.straggler_slowdown + beside_s
        probability = (1.0 - chance) * probability + chance * _link_suffices(found, limit_s - slow_s)
    return np.where(np.isnan(found.plan.bandwidth_share), np.nan, probability)


def _sounding_s(found: FirstRound) -> Array | float:
    """Returns the part of a problem's extra time that no straggler lengthens: its edge's pilots."""
    context = found.experiment.context
    return context.sounding_s(found.problem.edge) if context.radio.pilots else 0.0


def _link_suffices(found: FirstRound, left_s: Array) -> Array:
    """Returns the probability that each planned upload takes no longer than the time that is left.  [num_devices]"""
    radio, channel = found.experiment.radio, found.experiment.method.channel
    if radio.knows_fading:
        return (found.uplink_s <= left_s).astype(np.float64)
    served, mean = links_of(found)
    rates_bps = found.problem.full_band_rate_bps
    share = np.where(np.isnan(found.plan.bandwidth_share), 1.0, found.plan.bandwidth_share)
    bits = found.uplink_s * uplink_rate_bps(share, rates_bps, radio.slice_bandwidth_hz)
    needed_bps = bits / np.maximum(left_s, 1e-300)

    spread = 0.5 * (1.0 - radio.csi_correlation**2) / (rician_k(radio) + 1.0)
    noncentrality = np.maximum(mean / spread - 2.0 * radio.num_antennas, 0.0)
    low = np.full(mean.shape, 1e-30)
    high = spread * (np.sqrt(noncentrality) + np.sqrt(2.0 * radio.num_antennas) + 12.0) ** 2  # no gain is likely beyond
    for _ in range(_STEPS):
        middle = np.sqrt(low * high)
        full_bps = link_rates_bps(channel, served.gain[found.device], middle, radio)
        suffices = uplink_rate_bps(share, full_bps, radio.slice_bandwidth_hz) >= needed_bps
        low, high = np.where(suffices, low, middle), np.where(suffices, middle, high)
    missed, _ = chi_square(high / spread, noncentrality, radio.num_antennas)
    return np.clip(1.0 - missed, 0.0, 1.0)


def promises(found: FirstRound, probabilities: Sequence[float] = NINES) -> list[Promise]:
    """Plans the round for the mean gains and for each probability, at the given deadline."""
    target = float(np.mean(found.plan.pruning_ratio)) if not found.plan.failed.any() else float("nan")
    return [_promise(found, on_time, target) for on_time in (None, *probabilities)]


def _promise(found: FirstRound, on_time: float | None, target: float) -> Promise:
    experiment, given = found.experiment, found.problem
    reserve = reserve_for(on_time, experiment.scenario.events, knows_fading=experiment.radio.knows_fading)
    served, fading = links_of(found, reserve.link)
    gain = served.gain[found.device]
    rates_bps = link_rates_bps(experiment.method.channel, gain, fading, experiment.radio)
    slower, beside_s = reserve.slowdown / experiment.context.reserve.slowdown, _sounding_s(found)
    problem = replace(
        given,
        full_band_rate_bps=rates_bps,
        seconds_per_weight=slower * given.seconds_per_weight,
        extra_seconds=slower * (given.extra_seconds - beside_s) + beside_s,
    )
    plan = found.scheme.plan(problem)
    planned = ~problem.groups.spread(plan.failed)
    ratio = plan.pruning_ratio[planned]
    return Promise(
        on_time=on_time,
        served=int(np.count_nonzero(planned)),
        mean_ratio=float(ratio.mean()) if ratio.size else float("nan"),
        max_ratio=float(ratio.max()) if ratio.size else float("nan"),
        smallest_deadline_s=float(np.max(plan.min_deadline_s)),
        same_pruning_s=_same_pruning_s(problem, target, found.scheme.name),
    )


def _same_pruning_s(problem: PlanProblem, target: float, scheme: str) -> float:
    """Returns the deadline at which a scheme prunes by `target` on average; NaN for schemes that do not adapt to it."""
    if not 0.0 < target < 1.0:
        return float("nan")
    try:
        return smallest_deadline_s(problem, target_pruning=target, scheme=scheme, relative_tolerance=1e-6).value
    except AirpruneError:
        return float("nan")
