"""Simulates a deployment's recorded rounds under another deadline, method or any other setting.

Devices online, their measured rates and speeds, and uploads that were dropped, failed or refused are as recorded. Which
uploads miss the deadline is predicted anew. Of a device with a recorded upload,

    arrival = κ · T_c + υ · T_u + rest        κ, υ: measured over planned seconds of compute and uplink
                                              rest: recorded arrival − compute − uplink (the model's way down, disks)

where T_c and T_u are the seconds that the new plan takes at the recorded speed and rate. With the old plan this is the
recorded arrival. Without a changed setting the recorded outcomes are taken, so that it is the replay, bit for bit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from airprune.deployment.replay import Replayed, check_fits, met_candidates
from airprune.engines.base import Engine
from airprune.errors import WorkFailed
from airprune.methods.selection.base import Candidates
from airprune.rounds.experiment import Experiment
from airprune.rounds.state import RunState
from airprune.rounds.sums import EdgeResult
from airprune.rounds.timing import DeviceOutcome, TimedRound
from airprune.rounds.training.chunks import Started
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredRow, recorded_fate
from airprune.scenario import Scenario

Array = np.ndarray
# Of a device that missed the deadline before its upload began: its training took so many times the plan, as the
# estimates of a deployment take it too.
_SLOWDOWN_OF_LATE = 2.0
ASSUMPTIONS = (
    "Devices online, measured rates and speeds are those of the recorded edge rounds, in order, and from the first one "
    "again when more are needed.",
    "Uploads that were dropped, failed or refused stay so; missed deadlines are predicted: each device keeps its "
    "recorded measured / planned ratios and its time beside training and upload.",
    "Plans learn nothing new: what was measured under the recorded plans would also have been measured under these.",
)


@dataclass(frozen=True, kw_only=True)
class PredictedRound:
    """An edge round as it is predicted.

    Attributes:
      fates: how often each outcome occurs.
      took_s: from the orders to the last upload that counts, or to the deadline that one misses.
    """

    fates: Mapping[str, int]
    took_s: float


class WhatIf(Replayed):
    """Replays what a deployment met, with outcomes predicted for other settings.

    Args:
      on_round: called with each edge round that was predicted.
    """

    def __init__(self, folder: RunFolder, on_round: Callable[[PredictedRound], None]) -> None:
        super().__init__(folder)
        self._on_round = on_round
        self._lost: Mapping[int, str] = {}
        self._global_round = 0

    @cached_property
    def _numbers(self) -> list[int]:
        """Recorded edge rounds that are over, in order."""
        return [number for number in sorted(self._inputs) if self._has_ended(number)]

    def _recorded(self, number: int) -> int:
        if not self._numbers:
            raise WorkFailed(f"{self._folder.path} has no finished edge round; let the deployment go on.")
        return self._numbers[number % len(self._numbers)]

    def candidates(
        self, experiment: Experiment, state: RunState, candidates: Candidates, cpu_hz: Array
    ) -> tuple[Candidates, Array]:
        inputs = self._inputs[self._recorded(experiment.round_index(state))]
        check_fits(self._folder, experiment, inputs)
        self._global_round = inputs.global_round
        if inputs.restarts:
            state.edge_states[:] = state.global_state
        return met_candidates(experiment, candidates, inputs)

    def out(self, state: RunState) -> Array | None:
        edges = self._edges_out.get(self._global_round)
        return None if edges is None else np.isin(np.arange(len(state.edge_states)), sorted(edges))

    def lost(self, round_index: int) -> Mapping[int, str]:
        return self._lost

    def play(
        self, experiment: Experiment, engine: Engine, state: RunState, timed: TimedRound, groups: Sequence[Started]
    ) -> list[EdgeResult]:
        devices = [device for *_, group in groups for task in group.tasks for device in task.devices]
        recorded = self._recorded(experiment.round_index(state))
        if _settings(experiment.scenario) == self._settings:
            self._lost = super().lost(recorded)
            rows = self._rows.get(recorded, [])
            ends_s: Mapping[int, float | None] = {row.device: _recorded_end_s(row) for row in rows}
        else:
            extra_s = self._inputs[recorded].extra_s if experiment.method.scheme.chooses_work else None
            beside_s = dict(zip(self._inputs[recorded].device, extra_s or (), strict=False))
            self._lost, ends_s = self._predict(recorded, timed, devices, beside_s)
        fates = Counter(str(self._lost.get(device, DeviceOutcome.OK)) for device in devices)
        self._on_round(
            PredictedRound(fates=dict(fates), took_s=max((ends_s.get(d) or 0.0 for d in devices), default=0))
        )
        return super().play(experiment, engine, state, timed, groups)

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return _settings(self._folder.scenario())

    def _predict(
        self, recorded: int, timed: TimedRound, devices: Sequence[int], beside_s: Mapping[int, float | None]
    ) -> tuple[dict[int, str], Mapping[int, float | None]]:
        """Returns (devices whose uploads do not count, with their outcomes; until when each is waited for).

        Args:
          beside_s: what is planned beside each device's training, where work is planned.
        """
        planned = timed.planned
        deadline_s = max(float(planned.deadline_s), float(np.nanmax(timed.edge_latency_s))) + self._grace_s
        lost, ends_s = {}, {}
        for device in devices:
            row = self._row(recorded, device)
            if row is not None and row.round == recorded and row.fate not in (DeviceOutcome.OK, DeviceOutcome.LATE):
                lost[device] = recorded_fate(row.fate)
                continue
            place = int(np.searchsorted(planned.device, device))
            extra_s = beside_s.get(device) or 0.0
            training_s = float(timed.compute_s[place]) - extra_s
            bits, share = float(planned.bits[place]), float(planned.share[place])
            rate_bps = share * float(planned.full_band_rate_bps[place])
            arrival_s = _arrival_s(row, training_s, extra_s, bits, share, rate_bps)
            if arrival_s > deadline_s:
                lost[device] = str(DeviceOutcome.LATE)
            ends_s[device] = min(arrival_s, deadline_s)
        return lost, ends_s

    @cached_property
    def _grace_s(self) -> float:
        """Seconds that edges waited beyond the scenario's deadline, where that is a number of seconds."""
        deadline_s = self._folder.scenario().plan.deadline_s
        waited_s = [row.deadline_s for rows in self._rows.values() for row in rows if row.deadline_s is not None]
        return max(0.0, min(waited_s) - deadline_s) if waited_s and isinstance(deadline_s, float) else 0.0

    @cached_property
    def _by_device(self) -> dict[int, list[MeasuredRow]]:
        """Rows that show how fast a device is, in order."""
        found: dict[int, list[MeasuredRow]] = {}
        for _, rows in sorted(self._rows.items()):
            for row in rows:
                found.setdefault(row.device, []).append(row)
        return found

    def _row(self, recorded: int, device: int) -> MeasuredRow | None:
        """Returns the device's row of this round; if it was not selected, the one before it, or else the first."""
        rows = self._by_device.get(device, [])
        place = bisect_right([row.round for row in rows], recorded)
        return rows[max(0, place - 1)] if rows else None


def _recorded_end_s(row: MeasuredRow) -> float | None:
    return row.deadline_s if row.fate == DeviceOutcome.LATE else row.arrived_s


def _settings(scenario: Scenario) -> dict[str, Any]:
    """Returns what the outcome of an upload may depend on."""
    return scenario.model_dump(exclude={"name", "engine", "rounds", "stop"})


def _arrival_s(
    row: MeasuredRow | None, training_s: float, extra_s: float, bits: float, share: float, rate_bps: float
) -> float:
    """Returns when an upload is predicted to have arrived; as planned for a device of which nothing was recorded."""
    if row is None or row.rate_bps is None or not row.share:
        return training_s + extra_s + bits / rate_bps
    uplink_s = bits / (share * row.rate_bps / row.share) * _uplink_ratio(row)
    if row.compute_s is None or row.compute_ratio is None:
        slowdown = _SLOWDOWN_OF_LATE if row.fate == DeviceOutcome.LATE else 1.0
        return slowdown * training_s + extra_s + uplink_s
    return row.compute_ratio * training_s + uplink_s + _rest_s(row)


def _rest_s(row: MeasuredRow) -> float:
    """Returns the recorded seconds beside training and upload."""
    assert row.compute_s is not None
    if row.arrived_s is not None and row.uplink_s is not None:
        return row.arrived_s - row.compute_s - row.uplink_s
    return 0.0 if row.started_s is None else row.started_s - row.compute_s


def _uplink_ratio(row: MeasuredRow) -> float:
    """Returns measured over planned seconds; of a part of an upload, by the rate of that part."""
    if row.uplink_ratio is not None:
        return row.uplink_ratio
    if row.bytes and row.uplink_s and row.rate_bps:
        return row.uplink_s * row.rate_bps / (8.0 * row.bytes)
    return 1.0
