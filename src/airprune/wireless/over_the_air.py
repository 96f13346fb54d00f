"""Sums over the air: devices send their values at once, and the channel adds them up.

A symbol carries one or two real values, on one or both of its quadratures. Device n inverts its channel and sends
(a / h_n) c_n times its values, so that every value arrives times the same amplitude a, whatever the channel. The
station receives the sum and complex noise of power sigma^2, and divides by a Σ c_n:

    mean = Σ c_n x_n / Σ c_n + z / (a Σ c_n),   z of variance sigma^2 / 2 for each value.

With E_n = c_n^2 |x_n|^2 the energy of its weighted values and S symbols, device n sends with the power
a^2 E_n / (S g_n), at most p on average over its symbols. So the device that needs most of its power decides for all,

    a^2 = S min_n g_n p / E_n,

and it alone sends with the whole power. Nothing depends on the number of devices but the sum of their weights.
"""

from __future__ import annotations

import math

import numpy as np

from airprune.checks import FloatArray


def num_symbols(num_values: int, values_per_symbol: int) -> int:
    """S, the symbols of a message of so many values."""
    return math.ceil(num_values / values_per_symbol)


def air_rate_bps(bits_per_value: float, *, values_per_symbol: int, bandwidth_hz: float) -> float:
    """Rate at which values of so many bits arrive from every device at once: a symbol takes 1 / B.

    A message of W values then takes W / (values_per_symbol B), as many devices as there may be.
    """
    return bits_per_value * values_per_symbol * bandwidth_hz


def power_shares(energy: FloatArray, snr: FloatArray) -> FloatArray:
    """Power that each device sends with over its limit p, in [0, 1].  [num_devices]

    Args:
      energy: E_n = c_n^2 |x_n|^2.  [num_devices]
      snr: g_n p / sigma^2, > 0.  [num_devices]
    """
    needed = energy / snr
    most = needed.max(initial=0.0)
    return needed / most if most > 0.0 else np.zeros_like(needed)


def noise_variance(
    energy: FloatArray, snr: FloatArray, *, total_weight: float, num_values: int, values_per_symbol: int
) -> float:
    """Variance of each value of the mean that receiver noise causes: max_n (E_n / SNR_n) / (2 S (Σ c_n)^2).

    Args:
      energy, snr: as for `power_shares`, of the devices that send.
      total_weight: Σ c_n over them.
    """
    symbols = num_symbols(num_values, values_per_symbol)
    return float((energy / snr).max()) / (2.0 * symbols * total_weight**2)


def mean_error_sq(
    energy: FloatArray, snr: FloatArray, *, total_weight: float, num_values: int, values_per_symbol: int
) -> float:
    """E |mean − Σ c_n x_n / Σ c_n|^2 over all values: num_values times `noise_variance`.

    With two values per symbol and an even number of them it is max_n (c_n |x_n| / Σ c_n)^2 / SNR_n; with one it is
    half of that, for twice the time.
    """
    variance = noise_variance(
        energy, snr, total_weight=total_weight, num_values=num_values, values_per_symbol=values_per_symbol
    )
    return num_values * variance
