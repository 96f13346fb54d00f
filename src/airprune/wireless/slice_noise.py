"""Rates of devices that send with their whole power on their slice of the bandwidth, and see the noise of it alone.

    R(b) = b B log2(1 + γ / b),  γ = 2^(r/B) − 1: SNR and rate r over the whole bandwidth

R rises with b ever more slowly (concave), from 0 towards B γ / ln 2, and R(1) = r. With v = ln(1 + γ/b), the spectral
efficiency of the slice in nats, all of it is elementary:

    b = γ / (e^v − 1),  R = (B γ / ln 2) v / (e^v − 1),  R'(b) = (B / ln 2) (v − 1 + e^−v)
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

_LN2 = np.log(2.0)
# Beyond it e^v is no number; a slice with that efficiency is nothing.
MAX_NATS = 700.0
# Newton below gains digits quadratically from a start that is right at both ends; 50 only bounds the loop.
_MAX_STEPS = 50
_ROUNDING = 4 * np.finfo(np.float64).eps


def snr_of_rate(full_band_rate_bps: Array, bandwidth_hz: Array) -> Array:
    """Returns γ = 2^(r/B) − 1."""
    return np.expm1(full_band_rate_bps * (_LN2 / bandwidth_hz))


def nats(share: Array, snr: Array) -> Array:
    """Returns v = ln(1 + γ/b), at most `MAX_NATS`."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.minimum(np.where(snr > 0.0, np.log1p(snr / share), 0.0), MAX_NATS)


def slice_rate_bps(share: Array, full_band_rate_bps: Array, bandwidth_hz: Array) -> Array:
    """Returns R(b); 0 without a share, and NaN where the share is."""
    share = np.asarray(share, dtype=np.float64)
    efficiency = nats(share, snr_of_rate(full_band_rate_bps, bandwidth_hz))
    return np.where(share == 0.0, 0.0, share * (bandwidth_hz / _LN2) * efficiency)


def marginal_rate_bps(share: Array, full_band_rate_bps: Array, bandwidth_hz: Array) -> Array:
    """Returns R'(b)."""
    return (bandwidth_hz / _LN2) * growth(nats(share, snr_of_rate(full_band_rate_bps, bandwidth_hz)))


def slice_share(rate_bps: Array, full_band_rate_bps: Array, bandwidth_hz: Array) -> Array:
    """Returns the share b with R(b) = `rate_bps`, rounded up; infinite where no bandwidth suffices.

    v / (e^v − 1) = R ln 2 / (B γ) is solved by Newton's method on its logarithm, whose slope is between −1 and −1/2.
    """
    snr = snr_of_rate(full_band_rate_bps, bandwidth_hz)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        part = rate_bps * _LN2 / (bandwidth_hz * snr)
        reachable = (part > 0.0) & (part < 1.0)
        wanted = -np.log(np.where(reachable, part, 0.5))
        v = np.minimum(wanted + np.log1p(wanted), MAX_NATS)
        for _ in range(_MAX_STEPS):
            step = (np.log(np.expm1(v) / v) - wanted) / _log_slope(v)
            v = np.clip(v - step, 1e-300, MAX_NATS)
            if np.all(np.abs(step) <= 1e-8 * v):  # and the error is of its square
                break
        share = snr / np.expm1(v)
        share = share * (1.0 + _ROUNDING * (2.0 + v + v / growth(v)))  # what rounding of v and of R may cost
    return np.where(reachable, share, np.where(rate_bps == 0.0, 0.0, np.inf))


def growth(v: Array) -> Array:
    """Returns v − 1 + e^−v; its series where the difference would lose digits."""
    grown = np.asarray(v + np.expm1(-v))
    small = v < 0.02
    if np.any(small):
        x = v[small]
        grown[small] = x * x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0 * (1.0 - x / 5.0 * (1.0 - x / 6.0))))
    return grown


def _log_slope(v: Array) -> Array:
    """Returns the derivative of ln((e^v − 1) / v): between 1/2 and 1."""
    return np.where(v < 1e-4, 0.5 + v / 12.0, 1.0 / -np.expm1(-v) - 1.0 / v)
