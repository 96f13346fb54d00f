"""The largest models within a deadline and an energy budget: pruning, clock and power chosen together.

After Pervej, Jin and Dai (arXiv:2308.01562), with equal shares; exact, where they approximate by convex problems.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from airprune.latency import kept_weights
from airprune.planning.limits import limits_of, snr_at_full_power
from airprune.planning.plan import DEADLINE_TOLERANCE, Status
from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import ROUNDING_MARGIN
from airprune.schemes.base import Allocation, Scheme, equal_shares, status_of_fixed_shares

Array = np.ndarray

# Below this level a device computes and sends slower than anybody waits.
_LOWEST_LEVEL = 1e-30


def allocate(problem: PlanProblem) -> Allocation:
    """b = 1/N_k, then the largest W with which some (f, p) meets the deadline and the budget, at the cheapest such.

    At the optimum a second saved costs the same energy in the CPU as in the radio. With z = ln(1 + γ p / p_max) that is
    2 kappa f³ joules in the CPU and (z e^z − e^z + 1) p_max / γ in the radio, so that one level z gives both f and p,
    each held inside its range. What the deadline allows, W_T(z), grows with z; what the energy allows, W_E(z), falls;
    both in closed form. The largest W lies where they cross, found by bisection down to the last bit.
    """
    share = equal_shares(problem)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        curve = _Curve.of(problem, share)
        low, high = _last(lambda z: curve.weights_in_time(z) <= curve.weights_in_budget(z), curve)
        weights = np.maximum(curve.weights_within(low), curve.weights_within(high))
        ratio = np.where(problem.fc_weights > 0.0, 1.0 - (weights - problem.conv_weights) / problem.fc_weights, 0.0)
        ratio = np.clip(ratio, problem.min_pruning_ratio, problem.max_pruning_ratio)
        weights = kept_weights(ratio, conv_weights=problem.conv_weights, fc_weights=problem.fc_weights)
        limit_s = problem.deadline_s * (1.0 + ROUNDING_MARGIN)
        _, cheapest = _last(lambda z: curve.time_s(z, weights) > limit_s, curve)
        needed_s = _smallest_deadline_s(curve, problem.smallest_model_weights)
    short = needed_s > problem.deadline_s * (1.0 + DEADLINE_TOLERANCE)
    status = status_of_fixed_shares(problem, share)
    too_dear = (status == Status.OK) & problem.groups.any(short)
    return Allocation(
        share=share,
        ratio=ratio,
        status=np.where(too_dear, str(Status.INFEASIBLE_ENERGY), status),
        shadow_price=np.nan,
        min_deadline_s=problem.groups.max(needed_s),
        cpu_hz=curve.cpu_hz(cheapest),
        power_w=curve.power_w(cheapest),
        blocking=short,
    )


@dataclass(frozen=True, eq=False)
class _Curve:
    """Clock and power that belong together, by their common level z > 0; all arrays [num_devices]."""

    problem: PlanProblem
    band_hz: Array
    power_at_unit_snr: Array

    @classmethod
    def of(cls, problem: PlanProblem, share: Array) -> _Curve:
        limits = limits_of(problem)
        return cls(problem, share * limits.bandwidth_hz, limits.power_w_max / snr_at_full_power(problem))

    @property
    def top(self) -> Array:
        """A level at which both clock and power are full; from z = 2 on, z e^z − e^z + 1 ≥ e^z."""
        limits = limits_of(self.problem)
        full_clock = np.log(2.0 * limits.effective_capacitance * limits.cpu_hz_max**3 / self.power_at_unit_snr)
        return np.maximum(np.maximum(np.log1p(limits.power_w_max / self.power_at_unit_snr), full_clock), 2.0)

    def cpu_hz(self, z: Array) -> Array:
        limits = limits_of(self.problem)
        price = np.where(z < 1e-4, z * z * (0.5 + z / 3.0), z * np.exp(z) - np.expm1(z))  # its series where it cancels
        clock = np.cbrt(price * self.power_at_unit_snr / (2.0 * limits.effective_capacitance))
        return np.clip(clock, limits.cpu_hz_min, limits.cpu_hz_max)

    def power_w(self, z: Array) -> Array:
        limits = limits_of(self.problem)
        return np.clip(self.power_at_unit_snr * np.expm1(z), limits.power_w_min, limits.power_w_max)

    def weights_in_time(self, z: Array) -> Array:
        """W_T: what deadline, clock and rate allow; grows with z."""
        slowdown, bit_s, p = self._slowdown(z), self._bit_s(z), self.problem
        spare_s = p.deadline_s - p.extra_seconds * slowdown - p.fixed_bits * bit_s
        return _weights(spare_s, p.seconds_per_weight * slowdown + p.bits_per_weight * bit_s)

    def weights_in_budget(self, z: Array) -> Array:
        """W_E: what the energy allows; falls with z."""
        watt, p = self._compute_w(z), self.problem
        slowdown, bit_j = self._slowdown(z), self._bit_s(z) * self.power_w(z)
        spare_j = limits_of(p).energy_j - p.extra_seconds * slowdown * watt - p.fixed_bits * bit_j
        return _weights(spare_j, p.seconds_per_weight * slowdown * watt + p.bits_per_weight * bit_j)

    def weights_within(self, z: Array) -> Array:
        return np.minimum(self.weights_in_time(z), self.weights_in_budget(z))

    def time_s(self, z: Array, weights: Array) -> Array:
        p = self.problem
        compute_s = (p.seconds_per_weight * weights + p.extra_seconds) * self._slowdown(z)
        return compute_s + (p.bits_per_weight * weights + p.fixed_bits) * self._bit_s(z)

    def _compute_w(self, z: Array) -> Array:
        return limits_of(self.problem).effective_capacitance * self.cpu_hz(z) ** 3

    def _slowdown(self, z: Array) -> Array:
        return limits_of(self.problem).cpu_hz_max / self.cpu_hz(z)

    def _bit_s(self, z: Array) -> Array:
        return np.log(2.0) / (self.band_hz * np.log1p(self.power_w(z) / self.power_at_unit_snr))


def _weights(spare: Array, per_weight: Array) -> Array:
    """Where a weight costs nothing, all or none."""
    return np.where(per_weight > 0.0, spare / per_weight, np.where(spare >= 0.0, np.inf, -np.inf))


def _last(holds: Callable[[Array], Array], curve: _Curve) -> tuple[Array, Array]:
    """(the last level at which a condition that is true up to some level holds, the next): equal at an end."""
    low, high = np.full(curve.problem.num_devices, _LOWEST_LEVEL), curve.top
    everywhere, nowhere = holds(high), ~holds(low)
    low, high = np.where(everywhere, high, low), np.where(nowhere & ~everywhere, low, high)
    while True:
        middle = np.sqrt(low * high)
        if not np.any((middle > low) & (middle < high)):
            return low, high
        true = holds(middle)
        low, high = np.where(true, np.maximum(middle, low), low), np.where(true, high, np.minimum(middle, high))


def _smallest_deadline_s(curve: _Curve, weights: Array) -> Array:
    """How soon `weights` are there if all of the budget is spent; infinite where it never suffices."""
    affordable = weights * (1.0 - ROUNDING_MARGIN)
    level, _ = _last(lambda z: curve.weights_in_budget(z) >= affordable, curve)
    enough = curve.weights_in_budget(level) >= affordable
    time_s = curve.time_s(level, weights)
    return np.where(enough & np.isfinite(time_s), time_s, np.inf)


SCHEME = Scheme(
    name="energy",
    summary="equal shares; the largest models within deadline and energy, with the clock and power for them",
    allocate=allocate,
    needs_limits=True,
    source="after Pervej et al., arXiv:2308.01562",
)
