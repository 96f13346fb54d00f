"""Fading as plans know it: estimated or outdated channel state information (CSI), and gains that plans can count on.

A station knows x̂ = c x + sqrt(1 - c^2) e of the scattered part x of a device's channel, with the error e as large as x
and c the correlation of the two. Given x̂, x is normal with the mean c x̂ and the variance 1 - c^2, so that the gain over
M antennas is a noncentral chi-square variable,

    gain = s^2 χ'^2_2M(λ),  λ = Σ μ^2 / s^2,

with μ the amplitudes that belong to c x̂ and s^2 = (1 - c^2) / (2 (K + 1)). A plan counts on its mean,
Σ μ^2 + 2 M s^2, or on the gain that it exceeds with the probability `on_time`. Without any knowledge, c = 0, the gain
is Gamma(M, 1) in Rayleigh fading.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from airprune.checks import FloatArray
from airprune.wireless.channel import Radio, amplitudes, rician_k

# Square roots of λ at which quantiles are computed; between them the distance of the roots is interpolated.
_ROOTS = np.concatenate([np.arange(0.0, 20.0, 0.02), np.geomspace(20.0, 60.0, 40)])
_MAX_STEPS = 200
_LARGE = 1e5


def known_correlation(*, doppler_hz: float, delay_s: float, pilots: int, pilot_snr: float) -> float:
    """c of an estimate that is `delay_s` old, from so many pilots of this SNR each: |J0(2 pi f_D tau)| sqrt(γ/(1 + γ)).

    J0 by Clarke's model; γ = pilots · SNR, of the least-squares estimate scaled to the least error. Without pilots the
    channel is known as it was.
    """
    estimated = pilots * pilot_snr / (1.0 + pilots * pilot_snr) if pilots else 1.0
    return float(abs(bessel_j0(2.0 * np.pi * doppler_hz * delay_s)) * np.sqrt(estimated))


def bessel_j0(x: float) -> float:
    """J0(x): the mean of cos(x sin θ) over a period, in so many equal steps that it is exact to rounding.

    For very large x, the first term of its asymptotic series.
    """
    if x > _LARGE:
        return float(np.sqrt(2.0 / (np.pi * x)) * np.cos(x - np.pi / 4.0))
    count = int(1.2 * x) + 64
    return float(np.mean(np.cos(x * np.sin(2.0 * np.pi * np.arange(count) / count))))


def planned_gain(diffuse: FloatArray, radio: Radio, rng: np.random.Generator, on_time: float | None) -> FloatArray:
    """The gain that a plan counts on, given the radio's knowledge of the scattered parts.  [num_devices]

    Args:
      diffuse: as `diffuse_parts` has them.  [num_devices, M, 2]
      rng: stream of the errors.
      on_time: probability with which the true gain is at least this; None: its mean.
    """
    known, unknown = radio.csi_correlation, np.sqrt(1.0 - radio.csi_correlation**2)
    estimate = known * diffuse + unknown * rng.standard_normal(diffuse.shape)
    mean = amplitudes(known * estimate, radio)
    power = np.sum(mean**2, axis=(1, 2))
    spread = 0.5 * unknown**2 / (rician_k(radio) + 1.0)  # s^2
    if on_time is None:
        return power + 2.0 * radio.num_antennas * spread
    if spread == 0.0:
        return power
    return spread * chi_square_quantile(power / spread, num_antennas=radio.num_antennas, probability=1.0 - on_time)


def chi_square_quantile(noncentrality: FloatArray, *, num_antennas: int, probability: float) -> FloatArray:
    """x with P(χ'^2_2M(λ) <= x) = `probability`, for each λ.

    sqrt(x) - sqrt(λ) is a smooth function of sqrt(λ): exact on a fine grid, linear in between, and linear in 1/sqrt(λ)
    beyond it.
    """
    root = np.sqrt(noncentrality)
    distance = _root_distances(num_antennas, probability)
    inside = np.interp(root, _ROOTS, distance)
    slope = (distance[-1] - distance[-2]) / (1.0 / _ROOTS[-1] - 1.0 / _ROOTS[-2])
    beyond = distance[-1] + slope * (1.0 / np.maximum(root, _ROOTS[-1]) - 1.0 / _ROOTS[-1])
    return (root + np.where(root > _ROOTS[-1], beyond, inside)) ** 2


@lru_cache(maxsize=32)
def _root_distances(num_antennas: int, probability: float) -> FloatArray:
    """sqrt(x) - sqrt(λ) on the grid."""
    blocks = np.array_split(_ROOTS, 16)  # neighbours need about as many terms
    return np.concatenate([_exact_quantiles(block**2, num_antennas, probability) ** 0.5 - block for block in blocks])


def _exact_quantiles(noncentrality: FloatArray, num_antennas: int, probability: float) -> FloatArray:
    """Newton's method on ln P as a function of ln x, with a bisection where it would leave its bracket."""
    low = np.full(noncentrality.shape, 1e-12)
    high = (np.sqrt(noncentrality) + np.sqrt(2.0 * num_antennas) + 12.0) ** 2
    x = noncentrality + 2.0 * num_antennas
    for _ in range(_MAX_STEPS):
        below, density = chi_square(x, noncentrality, num_antennas)
        low, high = np.where(below < probability, x, low), np.where(below < probability, high, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            nearer = x * np.exp(np.log(probability / below) * below / (density * x))
        nearer = np.where((nearer > low) & (nearer < high), nearer, np.sqrt(low * high))
        moved, x = np.abs(nearer - x), nearer
        if np.all(moved <= 1e-13 * x):
            break
    return x


def chi_square(x: FloatArray, noncentrality: FloatArray, num_antennas: int) -> tuple[FloatArray, FloatArray]:
    """(P(χ'^2_2M(λ) <= x), its density) = (P(N_x >= M + N_λ), P(N_x = M - 1 + N_λ) / 2).

    N_x and N_λ are independent Poisson numbers with the means x/2 and λ/2.
    """
    most = float(max(np.max(x), np.max(noncentrality))) / 2.0
    count = int(most + 12.0 * np.sqrt(most) + 40.0) + num_antennas
    of_x, of_noncentrality = _poisson(x / 2.0, count), _poisson(noncentrality / 2.0, count)
    at_least = np.cumsum(of_x[:, ::-1], axis=1)[:, ::-1]
    shared = count - num_antennas
    below = np.sum(of_noncentrality[:, :shared] * at_least[:, num_antennas:], axis=1)
    density = 0.5 * np.sum(of_noncentrality[:, : shared + 1] * of_x[:, num_antennas - 1 :], axis=1)
    return below, density


def _poisson(mean: FloatArray, count: int) -> FloatArray:
    """P(N = 0), …, P(N = count - 1).  [num_means, count]"""
    number = np.arange(count)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(number[1:]))])
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.where(number > 0, number * np.log(mean)[:, np.newaxis], 0.0)
    return np.exp(powers - mean[:, np.newaxis] - log_factorial)
