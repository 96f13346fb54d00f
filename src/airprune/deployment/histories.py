"""Plans that hold with a given probability: quantiles of what was measured of each device.

With `plan.on_time` = p, a planned device should meet the deadline with probability p. Its time has two parts, training
and upload; each may be exceeded with probability (1 − p) / 2, so both hold with probability p at least, whether they
depend on each other or not. Of the last n measurements of a part, sorted, the next one is at most the k-th with
probability k / (n + 1), whatever their distribution is, as long as they are exchangeable. So plans take

    the k-th smallest, k = ⌈(n + 1) q⌉, q = 1 − (1 − p) / 2        if k ≤ n
    the largest, and the usual margin on top                       below q / (1 − q) measurements: 19 for p = 0.9

and never less time than the present estimate, which follows a device that becomes slower at once. Uploads are paced, so
they show rates up to the pace: what a link could have carried beyond it counts as nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from airprune.deployment.estimates import MARGIN_RATIO, Estimates
from airprune.deployment.pacing import WIRE_OVERHEAD
from airprune.rounds.state import RunState
from airprune.runs.measured import MeasuredRow

Array = np.ndarray
# Measurements that are kept of each device; enough for p = 0.96.
KEPT = 64
# Among a run's values: seconds per sample, and seconds per bit with the whole bandwidth.  [num_devices, KEPT]
_SECONDS, _PER_BIT = "world/history.seconds_per_sample", "world/history.seconds_per_bit"


def first_histories(num_devices: int) -> dict[str, Array]:
    """Returns empty histories, as values of a run's state."""
    return {name: np.full((num_devices, KEPT), np.nan) for name in (_SECONDS, _PER_BIT)}


def remember(state: RunState, rows: Sequence[MeasuredRow], slowdowns: Sequence[float], planned_s: Array) -> None:
    """Adds the measurements of a round.

    Args:
      slowdowns: measured over planned time before each upload; NaN if unknown.
      planned_s: seconds per sample that the round was planned with.  [num_devices]
    """
    for row, slowdown in zip(rows, slowdowns, strict=True):
        _append(state.values, _SECONDS, row.device, planned_s[row.device] * slowdown)
        if row.bytes and row.uplink_s and row.share:
            _append(state.values, _PER_BIT, row.device, row.share * row.uplink_s / (8.0 * row.bytes))


def _append(values: dict[str, Array], name: str, device: int, value: float) -> None:
    if math.isfinite(value) and value > 0.0:
        values[name] = values[name].copy()
        values[name][device] = np.append(values[name][device, 1:], value)


def planned_speeds(
    state: RunState, estimates: Estimates, on_time: float | None, *, num_parts: int
) -> tuple[Array, Array]:
    """Returns full-band uplink rates of payload, and seconds per sample, to plan with; NaN where unknown.

    Args:
      on_time: p; None: plans take the estimates with a margin.
      num_parts: of a device's time that are uncertain: 2 with the upload, 1 without.
    """
    rates_bps, seconds_s = estimates.uplink_bps() / WIRE_OVERHEAD, estimates.seconds_per_sample()
    if on_time is None:
        return rates_bps, seconds_s
    has_rates, has_seconds = (~np.isnan(state.values[name]).all(axis=1) for name in (_PER_BIT, _SECONDS))
    now_bps, now_s = estimates.uplink_bps(0.0) / WIRE_OVERHEAD, estimates.seconds_per_sample(0.0)
    return (
        np.where(has_rates, planned_rates_bps(state, now_bps, on_time=on_time), rates_bps),
        np.where(has_seconds, planned_seconds(state, now_s, on_time=on_time, num_parts=num_parts), seconds_s),
    )


def planned_seconds(state: RunState, estimate_s: Array, *, on_time: float, num_parts: int) -> Array:
    """Returns the seconds per sample to plan with, given the present estimate; NaN where unknown.  [num_devices]"""
    return np.fmax(quantiles(state.values[_SECONDS], 1.0 - (1.0 - on_time) / num_parts), estimate_s)


def planned_rates_bps(state: RunState, estimate_bps: Array, *, on_time: float) -> Array:
    """Returns the full-band rates to plan with, likewise.  [num_devices]"""
    return np.fmin(1.0 / quantiles(state.values[_PER_BIT], 1.0 - (1.0 - on_time) / 2), estimate_bps)


def quantiles(history: Array, level: float) -> Array:
    """Returns a bound for each row's next value that holds with probability `level`; NaN for an empty row.

    Args:
      history: NaN where there is no measurement.  [num_devices, any]
    """
    return np.array([_quantile(row[~np.isnan(row)], level) for row in history])


def _quantile(measured: Array, level: float) -> float:
    if not measured.size:
        return math.nan
    place = math.ceil((measured.size + 1) * level - 1e-9)  # 20 · 0.95 is 19, rounding or not
    if place > measured.size:
        return float(measured.max()) / (1.0 - MARGIN_RATIO)
    return float(np.sort(measured)[place - 1])


def planned_with(devices: Sequence[int], seconds: Sequence[float | None] | None, num_devices: int) -> Array:
    """Returns the seconds per sample of a round's inputs for all devices; NaN where there are none.  [num_devices]"""
    found = np.full(num_devices, np.nan)
    known: Mapping[int, float | None] = dict(zip(devices, seconds or (), strict=False))
    for device, value in known.items():
        found[device] = math.nan if value is None else value
    return found
