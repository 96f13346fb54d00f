"""Keeps the cloud's estimates of rates and speeds with the state of the run, and updates them after each round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from airprune.deployment.bounds import (
    LEAST_SECONDS_PER_SAMPLE,
    MOST_SECONDS,
    MOST_SECONDS_PER_SAMPLE,
)
from airprune.deployment.estimates import MARGIN_RATIO, PROBE_EVERY_ROUNDS, Estimates, paced_uplink_bps
from airprune.deployment.pacing import WIRE_OVERHEAD
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.rounds.state import RunState
from airprune.rounds.timing import DeviceOutcome
from airprune.rounds.work import LocalWork
from airprune.runs.measured import MeasuredRow

Array = np.ndarray
# Of their names among a run's values.
_PREFIX = "world/estimates."
# Devices of an edge that are probed after a round, at the most: it has to wait for them.
_MOST_PROBES = 3
# Where work is planned: what a round takes each device beside its training, among a run's values; until it is measured;
# and how many times as much a single measurement may be, since a device that comes back after a break shows the break.
_BESIDE, _FIRST_BESIDE_S, _MOST_RISE = "world/beside_s", 0.1, 4.0
# Of the cost of a part, at the most, that kept features save.
_MOST_SAVED = 0.99


def as_values(estimates: Estimates) -> dict[str, Array]:
    """Returns the estimates as values of a run's state."""
    return {_PREFIX + name: array for name, array in estimates.arrays().items()}


def first_beside(num_devices: int) -> dict[str, Array]:
    """Returns the value of a run's state that `beside_s` reads, for schemes that plan work."""
    return {_BESIDE: np.full(num_devices, _FIRST_BESIDE_S)}


def beside_s(state: RunState) -> Array | None:
    """Returns the seconds beside training to plan with; None where no work is planned.  [num_devices]"""
    return None if _BESIDE not in state.values else state.values[_BESIDE] / (1.0 - MARGIN_RATIO)


def part_costs(present: Iterable[pb.Presence.Device], work: LocalWork) -> tuple[Array, Array] | None:
    """Returns κ_d and φ_d of `planning.WorkModel`: medians of what devices measured; None if none has measured them.

    Where each part has fewer layers than the one before, costs are made to fall, as planners rely on.
    """
    num_parts = len(work.first_trained)
    measured = [[(part.seconds, part.cached_seconds) for part in device.parts] for device in present]
    times_s = np.array([rows for rows in measured if len(rows) == num_parts and all(min(row) > 0.0 for row in rows)])
    if not len(times_s):
        return None
    step, cached = np.median(times_s / times_s[:, :1, :1], axis=0).T
    cost = np.concatenate([[1.0], np.minimum(step[1:], 1.0)])
    if work.last_trained is None:
        cost = np.minimum.accumulate(cost)
    # Only what a scheme counts on is saved, and nothing with the whole model, which has no frozen layers.
    saved = np.where(work.saved > 0.0, np.clip(step - cached, 0.0, _MOST_SAVED * cost), 0.0)
    return cost, saved


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


def learn(
    state: RunState, rows: Sequence[MeasuredRow], reports: Iterable[pb.EdgeReport], planned_s: Array | None = None
) -> None:
    """Updates the estimates by a round and the probes after it.

    Args:
      planned_s: seconds per sample that the round was planned with; None: as the estimates say.  [num_devices]
    """
    estimates = load_estimates(state)
    uplink_bps, seconds, probed_bps = (np.full(len(estimates.uplink.value), np.nan) for _ in range(3))
    planned_s = estimates.seconds_per_sample() if planned_s is None else planned_s
    for row in rows:
        uplink_bps[row.device] = uplink_bps_of(row)
        seconds[row.device] = planned_s[row.device] * slowdown_of(row)
    for report in reports:
        for probed in report.probed:
            probed_bps[probed.device] = probed.uplink_bps
    if _BESIDE in state.values:
        state.values[_BESIDE] = _learnt_beside_s(state.values[_BESIDE], rows)
    uplink_bps = np.fmin(uplink_bps, estimates.raised_by(probed_bps))
    seconds = np.clip(seconds, LEAST_SECONDS_PER_SAMPLE, MOST_SECONDS_PER_SAMPLE)
    state.values |= as_values(estimates.updated(uplink_bps=uplink_bps, seconds_per_sample=seconds))


def _learnt_beside_s(known_s: Array, rows: Sequence[MeasuredRow]) -> Array:
    """Returns the seconds beside training after a round: the mean of what was known and what was measured."""
    beside_s = known_s.copy()
    for row in rows:
        before_s = known_s[row.device]
        if row.started_s is not None and row.compute_s is not None:
            found_s = min(max(row.started_s - row.compute_s, 0.0), _MOST_RISE * before_s)
            beside_s[row.device] = 0.5 * (before_s + found_s)
        elif row.fate == DeviceOutcome.LATE:
            beside_s[row.device] = min(2.0 * before_s, MOST_SECONDS)
    return beside_s


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
    """Returns measured over planned time before the upload, with the model's way down and the writing of the ledger.

    Where these are planned beside the training, that of the training alone.
    """
    if row.started_s is not None and row.extra_s is not None:
        return math.nan if row.compute_ratio is None else row.compute_ratio
    if row.started_s is not None and row.planned_compute_s:
        return row.started_s / row.planned_compute_s
    # A device that missed the deadline before it began to send is slower, by how much is not known.
    return 2.0 if row.fate == DeviceOutcome.LATE else math.nan
