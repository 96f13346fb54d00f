"""Holds the ranges of CPU frequency and power and the energy budget of devices, for schemes that choose them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.checks import quantity
from airprune.errors import InvalidValue
from airprune.wireless.latency import EFFECTIVE_CAPACITANCE

if TYPE_CHECKING:
    from airprune.planning.problem import PlanProblem

Array = np.ndarray

# 2^1000 is an SNR of 3,000 dB: a rate beyond it means that bandwidth and rate do not belong together.
_MAX_BITS_PER_HZ = 1000.0


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceLimits:
    """The ranges of clock and power, and an energy budget. Numbers, or arrays of shape [num_devices].

    The `seconds_per_weight` a and `extra_seconds` x of a problem are those at full clock, its `full_band_rate_bps` r is
    that at full power. So no cycles and no SNR are needed here:

        a(f) = a f_max / f,  x(f) = x f_max / f
        r(p) = B log2(1 + γ p / p_max),  γ = 2^(r/B) − 1     Eq. (10) with another power, noise as it is

    Attributes:
      cpu_hz_max, cpu_hz_min: range of f_n.
      power_w_max, power_w_min: range of p_n.
      bandwidth_hz: B, bandwidth of the edge.
      energy_j: energy budget of a device for one edge round; infinite by default.
      effective_capacitance: kappa of `latency.compute_energy_j`, times the number of cores.
      amplifier_efficiency: eta of `latency.transmit_energy_j`: to radiate p takes p / eta.
    """

    cpu_hz_max: Any
    power_w_max: Any
    bandwidth_hz: Any
    cpu_hz_min: Any = 0.0
    power_w_min: Any = 0.0
    energy_j: Any = np.inf
    effective_capacitance: Any = EFFECTIVE_CAPACITANCE
    amplifier_efficiency: Any = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            checked = quantity(f"DeviceLimits.{field.name}", getattr(self, field.name), **_RULES[field.name])
            object.__setattr__(self, field.name, checked)
        for low, high in (("cpu_hz_min", "cpu_hz_max"), ("power_w_min", "power_w_max")):
            if np.any(getattr(self, low) > getattr(self, high)):
                raise InvalidValue(f"DeviceLimits.{low}", f"must be ≤ {high}", getattr(self, low))

    def for_devices(self, full_band_rate_bps: Array) -> DeviceLimits:
        """Returns the same with one entry per device; raises InvalidValue if they do not fit the rates."""
        count = len(full_band_rate_bps)
        values: dict[str, Array] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value.ndim and value.shape != (count,):
                rule = f"must be a number or have one entry for each of {count} devices"
                raise InvalidValue(f"DeviceLimits.{field.name}", rule, f"shape {value.shape}")
            values[field.name] = np.broadcast_to(value, (count,))
        if np.any(full_band_rate_bps > _MAX_BITS_PER_HZ * values["bandwidth_hz"]):
            rule = f"must be at least a {_MAX_BITS_PER_HZ:g}th of full_band_rate_bps"
            raise InvalidValue("DeviceLimits.bandwidth_hz", rule, f"{values['bandwidth_hz'].min():g}", "Give it in Hz.")
        return DeviceLimits(**values)

    def subset(self, kept: Any) -> DeviceLimits:
        return DeviceLimits(**{field.name: getattr(self, field.name)[kept] for field in fields(self)})


_RULES: dict[str, dict[str, Any]] = {
    "cpu_hz_max": {"above": 0.0, "way_out": "Example: cpu_hz_max = 3e9"},
    "power_w_max": {"above": 0.0, "way_out": "Example: power_w_max = 0.63"},
    "bandwidth_hz": {"above": 0.0, "way_out": "Example: bandwidth_hz = 20e6"},
    "cpu_hz_min": {"at_least": 0.0},
    "power_w_min": {"at_least": 0.0},
    "energy_j": {"above": 0.0, "finite": False},
    "effective_capacitance": {"at_least": 0.0},
    "amplifier_efficiency": {"above": 0.0, "at_most": 1.0, "way_out": "Example: amplifier_efficiency = 0.35"},
}


def limits_of(problem: PlanProblem) -> DeviceLimits:
    if problem.limits is None:
        raise InvalidValue(
            "PlanProblem.limits",
            "must be given for schemes that choose clock, power or energy",
            None,
            "Example: limits=DeviceLimits(cpu_hz_max=3e9, power_w_max=0.63, bandwidth_hz=20e6, energy_j=0.01)",
        )
    return problem.limits


def slowdown(problem: PlanProblem, cpu_hz: Array) -> Array:
    """Returns f_max / f, the factor by which compute takes longer than at full clock."""
    return limits_of(problem).cpu_hz_max / cpu_hz


def snr_at_full_power(problem: PlanProblem) -> Array:
    """Returns γ = 2^(r/B) − 1."""
    return np.expm1(problem.full_band_rate_bps * (np.log(2.0) / limits_of(problem).bandwidth_hz))


def full_band_rate_at(problem: PlanProblem, power_w: Array) -> Array:
    """Returns r(p) = B log2(1 + γ p / p_max); at full power the problem's own rate to the bit."""
    limits = limits_of(problem)
    rate = limits.bandwidth_hz * np.log1p(snr_at_full_power(problem) * (power_w / limits.power_w_max)) / np.log(2.0)
    return np.where(power_w == limits.power_w_max, problem.full_band_rate_bps, rate)


def energy_j(problem: PlanProblem, *, compute_s: Array, uplink_s: Array, cpu_hz: Array, power_w: Array) -> Array:
    """Returns the energy of kappa f³ watts while computing and p / eta watts while sending, as in `latency`."""
    limits = limits_of(problem)
    return limits.effective_capacitance * cpu_hz**3 * compute_s + power_w / limits.amplifier_efficiency * uplink_s
