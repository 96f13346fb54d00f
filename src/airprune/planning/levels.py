"""Chooses CPU frequency and power together: at the optimum a second costs the same in the CPU as in the radio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from airprune.planning.limits import limits_of, snr_at_full_power
from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import ROUNDING_MARGIN

Array = np.ndarray

# Below this level no deadline is long enough for a device.
_LOWEST_LEVEL = 1e-30


@dataclass(frozen=True, eq=False)
class Levels:
    """The pairs of clock and power that belong together, by their common level z > 0.  Arrays [num_devices]

    Where energy is least, a second saved costs the same in the CPU as in the radio. With z = ln(1 + γ p / p_max) that
    is 2 kappa f³ joules in the CPU and (z e^z − e^z + 1) p_max / (γ η) in the radio, so that one level gives both f and
    p, each held inside its range.
    """

    problem: PlanProblem
    band_hz: Array
    power_at_unit_snr: Array

    @classmethod
    def of(cls, problem: PlanProblem, share: Array) -> Levels:
        limits = limits_of(problem)
        return cls(problem, share * limits.bandwidth_hz, limits.power_w_max / snr_at_full_power(problem))

    @property
    def top(self) -> Array:
        """Returns a level at which both clock and power are full; from z = 2 on, z e^z − e^z + 1 ≥ e^z."""
        limits = limits_of(self.problem)
        consumed_w = self.power_at_unit_snr / limits.amplifier_efficiency
        full_clock = np.log(2.0 * limits.effective_capacitance * limits.cpu_hz_max**3 / consumed_w)
        return np.maximum(np.maximum(np.log1p(limits.power_w_max / self.power_at_unit_snr), full_clock), 2.0)

    def second_j(self, z: Array) -> Array:
        """Returns the energy in joules that saving one second costs."""
        price = np.where(z < 1e-4, z * z * (0.5 + z / 3.0), z * np.exp(z) - np.expm1(z))  # its series where it cancels
        return price * (self.power_at_unit_snr / limits_of(self.problem).amplifier_efficiency)

    def cpu_hz(self, z: Array) -> Array:
        limits = limits_of(self.problem)
        clock = np.cbrt(self.second_j(z) / (2.0 * limits.effective_capacitance))
        return np.clip(clock, limits.cpu_hz_min, limits.cpu_hz_max)

    def power_w(self, z: Array) -> Array:
        limits = limits_of(self.problem)
        return np.clip(self.power_at_unit_snr * np.expm1(z), limits.power_w_min, limits.power_w_max)

    def weights_in_time(self, z: Array) -> Array:
        """Returns W_T, the weights that deadline, clock and rate allow; grows with z."""
        slowdown, bit_s, p = self._slowdown(z), self._bit_s(z), self.problem
        spare_s = p.deadline_s - p.extra_seconds * slowdown - p.fixed_bits * bit_s
        return _weights(spare_s, p.seconds_per_weight * slowdown + p.bits_per_weight * bit_s)

    def weights_in_budget(self, z: Array) -> Array:
        """Returns W_E, the weights that the energy budget allows; falls with z."""
        watt, p = self._compute_w(z), self.problem
        slowdown, bit_j = self._slowdown(z), self._bit_s(z) * self._sending_w(z)
        spare_j = limits_of(p).energy_j - p.extra_seconds * slowdown * watt - p.fixed_bits * bit_j
        return _weights(spare_j, p.seconds_per_weight * slowdown * watt + p.bits_per_weight * bit_j)

    def weights_within(self, z: Array) -> Array:
        return np.minimum(self.weights_in_time(z), self.weights_in_budget(z))

    def time_s(self, z: Array, weights: Array) -> Array:
        p = self.problem
        compute_s = (p.seconds_per_weight * weights + p.extra_seconds) * self._slowdown(z)
        return compute_s + (p.bits_per_weight * weights + p.fixed_bits) * self._bit_s(z)

    def energy_j(self, z: Array, weights: Array) -> Array:
        p = self.problem
        compute_s = (p.seconds_per_weight * weights + p.extra_seconds) * self._slowdown(z)
        uplink_s = (p.bits_per_weight * weights + p.fixed_bits) * self._bit_s(z)
        return compute_s * self._compute_w(z) + uplink_s * self._sending_w(z)

    def cheapest_in_time(self, weights: Array) -> Array:
        """Returns the lowest level at which `weights` meet the deadline; the top where none does."""
        limit_s = self.problem.deadline_s * (1.0 + ROUNDING_MARGIN)
        return last_level(lambda z: self.time_s(z, weights) > limit_s, self)[1]

    def _compute_w(self, z: Array) -> Array:
        return limits_of(self.problem).effective_capacitance * self.cpu_hz(z) ** 3

    def _sending_w(self, z: Array) -> Array:
        return self.power_w(z) / limits_of(self.problem).amplifier_efficiency

    def _slowdown(self, z: Array) -> Array:
        return limits_of(self.problem).cpu_hz_max / self.cpu_hz(z)

    def _bit_s(self, z: Array) -> Array:
        return np.log(2.0) / (self.band_hz * np.log1p(self.power_w(z) / self.power_at_unit_snr))


def _weights(spare: Array, per_weight: Array) -> Array:
    """Returns spare / per_weight; all or none where a weight costs nothing."""
    return np.where(per_weight > 0.0, spare / per_weight, np.where(spare >= 0.0, np.inf, -np.inf))


def last_level(holds: Callable[[Array], Array], curve: Levels) -> tuple[Array, Array]:
    """Returns (the last level up to which a condition holds, the next one), which are equal at an end."""
    low, high = np.full(curve.problem.num_devices, _LOWEST_LEVEL), curve.top
    everywhere, nowhere = holds(high), ~holds(low)
    low, high = np.where(everywhere, high, low), np.where(nowhere & ~everywhere, low, high)
    while True:
        middle = np.sqrt(low * high)
        if not np.any((middle > low) & (middle < high)):
            return low, high
        true = holds(middle)
        low, high = np.where(true, np.maximum(middle, low), low), np.where(true, high, np.minimum(middle, high))
