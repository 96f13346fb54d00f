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
# Halley's method below gains digits cubically from a start that is right at both ends; 50 only bounds the loop.
_MAX_STEPS = 50
# Devices at a time, so that a million of them are worked on in the processor's cache.
_BLOCK = 1 << 14
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
    """Returns the share b with R(b) = `rate_bps`, rounded up; infinite where no bandwidth suffices."""
    snr = snr_of_rate(full_band_rate_bps, bandwidth_hz)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        part = rate_bps * _LN2 / (bandwidth_hz * snr)
        reachable = (part > 0.0) & (part < 1.0)
        share = share_of_nats(nats_of_part(np.where(reachable, part, 0.5)), snr)
    return np.where(reachable, share, np.where(rate_bps == 0.0, 0.0, np.inf))


def nats_of_part(part: Array, start: Array | None = None) -> Array:
    """Returns the v at which a slice carries `part` of what infinite bandwidth would: v / (e^v − 1), in (0, 1).

    Found by Halley's method on its logarithm, whose slope by v is between −1 and −1/2.

    Args:
      start: v near the answer.
    """
    part, v = np.asarray(part), np.empty(np.shape(part))
    parts, found, starts = part.reshape(-1), v.reshape(-1), None if start is None else start.reshape(-1)
    for first in range(0, parts.size, _BLOCK):
        block = slice(first, first + _BLOCK)
        found[block] = _nats_of_block(parts[block], None if starts is None else starts[block])
    return v


def _nats_of_block(part: Array, start: Array | None) -> Array:
    wanted = -np.log(part)
    v = np.minimum(wanted + np.log1p(wanted), MAX_NATS) if start is None else start
    for _ in range(_MAX_STEPS):
        grown = np.expm1(v)
        excess = np.log(grown / v) - wanted
        slope, bend = _log_slopes(v, grown)
        step = excess / np.maximum(slope - 0.5 * excess * bend / slope, 0.5 * slope)  # never back from afar
        v = np.clip(v - step, 1e-300, MAX_NATS)
        if np.all(np.abs(step) <= 2e-5 * v):  # and the error is of its cube
            break
    return v


def share_of_nats(v: Array, snr: Array) -> Array:
    """Returns b = γ / (e^v − 1), rounded up by what rounding of v and of R may cost."""
    return snr / np.expm1(v) * (1.0 + _ROUNDING * (3.0 + v + 2.0 / v))  # v / growth(v) ≤ 1 + 2 / v


def growth(v: Array, shrunk: Array | None = None) -> Array:
    """Returns v − 1 + e^−v; its series where the difference would lose digits.

    Args:
      shrunk: 1 − e^−v, if known.
    """
    grown = np.asarray(v + np.expm1(-v) if shrunk is None else v - shrunk)
    small = v < 0.02
    if np.any(small):
        x = v[small]
        grown[small] = x * x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0 * (1.0 - x / 5.0 * (1.0 - x / 6.0))))
    return grown


def _log_slopes(v: Array, grown: Array) -> tuple[Array, Array]:
    """Returns first and second derivative of ln((e^v − 1) / v): from 1/2 to 1, and at most 1/12.

    Args:
      grown: e^v − 1.
    """
    of_v, of_grown = 1.0 / v, 1.0 / grown
    slope = 1.0 + of_grown - of_v
    bend = (of_v - of_grown) * (of_v + of_grown) - of_grown
    small = v < 1e-4  # where the differences lose digits
    if np.any(small):
        slope, bend = np.where(small, 0.5 + v / 12.0, slope), np.where(small, 1.0 / 12.0, bend)
    return slope, bend
