"""Compares predicted with measured times of each device, and fits the network that would have been right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.errors import WorkFailed
from airprune.runs.measured import MeasuredRow, PlannedInputs
from airprune.tables import write_csv_atomic
from airprune.wireless.channel import MAX_BITS_PER_HZ

if TYPE_CHECKING:
    from airprune.scenario import Scenario

Seen = Any  # samples of a device → sample passes of an edge round, as `TrainSection.samples_seen`

# Of a bandwidth that is made large enough for measured rates: what a good radio does.
_USUAL_BITS_PER_HZ = 10.0


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Some measurements: their median, 10th and 90th percentile."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Returns the spread of the known values; None if there are none."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        low, median, high = np.percentile(known, (10, 50, 90)).tolist()
        return cls(median=median, low=low, high=high, count=len(known))


@dataclass(frozen=True, kw_only=True)
class DeviceFit:
    """A device over all its rounds; None where nothing was measured.

    Attributes:
      fates: how often each outcome occurred; `last_fate` is the last.
      compute, uplink: measured over planned seconds.
      seconds_per_sample: a_n, of training the whole model.
      full_band_rate_bps: r_n that would have predicted the uplink times, headers and round trips included, since the
        simulated clock has none: 8 · bytes / (b_n · T_up).
      rtt_s: median.
    """

    device: int
    name: str
    edge: int
    fates: dict[str, int]
    last_fate: str
    compute: Spread | None
    uplink: Spread | None
    seconds_per_sample: float | None
    full_band_rate_bps: float | None
    rtt_s: float | None


def fit_devices(rows: Sequence[MeasuredRow], inputs: Mapping[int, PlannedInputs], seen: Seen) -> list[DeviceFit]:
    """Fits every device that was ever selected, by its number; what was not measured of it is as it was planned."""
    by_device: dict[int, list[MeasuredRow]] = {}
    for row in rows:
        by_device.setdefault(row.device, []).append(row)
    return [_fit(by_device[device], inputs, seen) for device in sorted(by_device)]


def _fit(rows: Sequence[MeasuredRow], inputs: Mapping[int, PlannedInputs], seen: Seen) -> DeviceFit:
    last = rows[-1]
    planned_s = [_planned_seconds_per_sample(row, inputs) for row in rows]
    per_sample = Spread.of(_seconds_per_sample(row, known, seen) for row, known in zip(rows, planned_s, strict=True))
    rate = Spread.of(map(full_band_rate_bps, rows))
    rtt = Spread.of(row.rtt_s for row in rows)
    return DeviceFit(
        device=last.device,
        name=str(last.device) if last.name is None else last.name,
        edge=last.edge,
        fates=dict(Counter(row.fate for row in rows)),
        last_fate=last.fate,
        compute=Spread.of(row.compute_ratio for row in rows),
        uplink=Spread.of(row.uplink_ratio for row in rows),
        seconds_per_sample=planned_s[-1] if per_sample is None else per_sample.median,
        full_band_rate_bps=last.full_band_rate_bps if rate is None else rate.median,
        rtt_s=None if rtt is None else rtt.median,
    )


def _planned_seconds_per_sample(row: MeasuredRow, inputs: Mapping[int, PlannedInputs]) -> float | None:
    used = inputs.get(row.round)
    if used is None or used.seconds_per_sample is None or row.device not in used.device:
        return None
    return used.seconds_per_sample[used.device.index(row.device)]


def _seconds_per_sample(row: MeasuredRow, planned_s: float | None, seen: Seen) -> float | None:
    """Returns the planned value, corrected by the measured ratio; else the round's time over the samples it has seen.

    The latter takes a pruned model for a whole one, so it is too low where pruning saves time.
    """
    if planned_s is not None and row.compute_ratio is not None:
        return planned_s * row.compute_ratio
    if row.compute_s is None or not row.num_samples:
        return None
    passes = float(seen(row.num_samples))
    return row.compute_s / passes if passes > 0 else None


def full_band_rate_bps(row: MeasuredRow) -> float | None:
    """Returns the r_n that would have predicted the time of an upload; None if it was not measured."""
    if not row.bytes or not row.share or not row.uplink_s or row.uplink_s <= 0:
        return None
    return 8.0 * row.bytes / (row.share * row.uplink_s)


def network_columns(fits: Sequence[DeviceFit]) -> dict[str, list[Any]]:
    """Returns the table that `network.table` reads, one row per device."""
    lost = [fit.name for fit in fits if fit.full_band_rate_bps is None]
    if lost:
        raise WorkFailed(f"Nothing is known of the uplink of {', '.join(lost[:5])}; let the run go on and try again.")
    columns: dict[str, list[Any]] = {
        "device": [fit.name for fit in fits],
        "edge": [fit.edge for fit in fits],
        "full_band_rate_bps": [fit.full_band_rate_bps for fit in fits],
    }
    if any(fit.seconds_per_sample is not None for fit in fits):
        columns["seconds_per_sample"] = [
            "" if fit.seconds_per_sample is None else fit.seconds_per_sample for fit in fits
        ]
    return columns


def write_network(path: Path, fits: Sequence[DeviceFit]) -> None:
    columns = network_columns(fits)
    write_csv_atomic(path, list(columns), list(columns.values()))


def overrides_for(path: Path, fits: Sequence[DeviceFit], scenario: Scenario) -> list[str]:
    """Returns the overrides that give a scenario this network, and a wider bandwidth if these rates need one."""
    highest = max(fit.full_band_rate_bps or 0.0 for fit in fits)
    too_narrow = highest > MAX_BITS_PER_HZ * scenario.radio.bandwidth_hz
    wider = [f"radio.bandwidth_hz={highest / _USUAL_BITS_PER_HZ:.3g}"] if too_narrow else []
    return [f"network.table={path}", *wider]
