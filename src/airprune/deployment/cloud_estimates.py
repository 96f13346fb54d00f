"""Keeps the cloud's estimates of rates and speeds with the state of the run, and updates them after each round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from airprune.deployment.estimates import PROBE_EVERY_ROUNDS, Estimates, paced_uplink_bps
from airprune.deployment.pacing import WIRE_OVERHEAD
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.rounds.state import RunState
from airprune.rounds.timing import DeviceOutcome
from airprune.runs.measured import MeasuredRow

Array = np.ndarray
# Of their names among a run's values.
_PREFIX = "world/estimates."
# Devices of an edge that are probed after a round, at the most: it has to wait for them.
_MOST_PROBES = 3


def as_values(estimates: Estimates) -> dict[str, Array]:
    """Returns the estimates as values of a run's state."""
    return {_PREFIX + name: array for name, array in estimates.arrays().items()}


def load_estimates(state: RunState) -> Estimates:
    """Returns the estimates that the state holds."""
    names = (name for name in state.values if name.startswith(_PREFIX))
    return Estimates.from_arrays({name.removeprefix(_PREFIX): state.values[name] for name in names})


def with_measurements_at_joining(state: RunState, present: Mapping[int, pb.Presence.Device]) -> Estimates:
    """Returns the estimates, with what devices measured at joining where nothing better is known, or nothing for long.

    The latter is for devices that once were too slow to be selected: otherwise they would never be measured again.
    """
    estimates = load_estimates(state)
    size = len(estimates.uplink.value)
    uplink_bps, seconds = np.full(size, np.nan), np.full(size, np.nan)
    is_old = estimates.speed.age >= PROBE_EVERY_ROUNDS
    for device, measured in present.items():
        if np.isnan(estimates.uplink.value[device]) and measured.uplink_bps > 0:
            uplink_bps[device] = measured.uplink_bps
        if is_old[device] and measured.seconds_per_sample > 0:
            seconds[device] = measured.seconds_per_sample
    if not (np.isnan(uplink_bps).all() and np.isnan(seconds).all()):
        estimates = estimates.updated(uplink_bps=uplink_bps, seconds_per_sample=seconds)
        state.values |= as_values(estimates)
    return estimates


def due_probes(state: RunState, devices: Iterable[int], *, every: int) -> list[pb.Probe]:
    """Returns probes of those devices of an edge that have gone without one for longest."""
    estimates = load_estimates(state)
    is_due, age = estimates.probe_due(every), estimates.uplink.age
    chosen = sorted((device for device in devices if is_due[device]), key=lambda device: -age[device])[:_MOST_PROBES]
    return [pb.Probe(device=device, bytes=estimates.probe_bytes(device)) for device in chosen]


def learn(state: RunState, rows: Sequence[MeasuredRow], reports: Iterable[pb.EdgeReport]) -> None:
    """Updates the estimates by a round and the probes after it."""
    estimates = load_estimates(state)
    uplink_bps, seconds, probed_bps = (np.full(len(estimates.uplink.value), np.nan) for _ in range(3))
    planned_s = estimates.seconds_per_sample()
    for row in rows:
        uplink_bps[row.device] = uplink_bps_of(row)
        seconds[row.device] = planned_s[row.device] * slowdown_of(row)
    for report in reports:
        for probed in report.probed:
            probed_bps[probed.device] = probed.uplink_bps
    uplink_bps = np.fmin(uplink_bps, estimates.raised_by(probed_bps))
    state.values |= as_values(estimates.updated(uplink_bps=uplink_bps, seconds_per_sample=seconds))


def uplink_bps_of(row: MeasuredRow) -> float:
    """Returns the full-band rate that an upload shows, from the part that has come if it is still under way."""
    if row.bytes is None or not row.uplink_s or not row.rate_bps or not row.share:
        return math.nan
    measured_bps = 8.0 * row.bytes / row.uplink_s
    if row.bytes == 0:  # slower than planned, by how much is not known
        measured_bps = 0.5 * row.rate_bps
    found = paced_uplink_bps(WIRE_OVERHEAD * measured_bps, planned_bps=WIRE_OVERHEAD * row.rate_bps, share=row.share)
    return float(found)


def slowdown_of(row: MeasuredRow) -> float:
    """Returns measured over planned time before the upload, with the model's way down and the writing of the ledger."""
    if row.started_s is not None and row.planned_compute_s:
        return row.started_s / row.planned_compute_s
    # A device that missed the deadline before it began to send is slower, by how much is not known.
    return 2.0 if row.fate == DeviceOutcome.LATE else math.nan
