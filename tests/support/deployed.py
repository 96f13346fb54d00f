"""Run folders as a deployment leaves them, made without one: a stand-in for the real machines, for tests only."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from airprune.deployment.replay import met_candidates
from airprune.deployment.status import NodeStatus, Status, write_status
from airprune.rounds.experiment import Experiment
from airprune.runs.driver import records_of
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredLog, MeasuredRow, PlannedInputs, recorded_fate
from airprune.scenario import Scenario
from airprune.simulation import Environment
from support.web_runs import tiny

FATES = ("late", "dropped", "refused")
ROW = MeasuredRow(
    round=0,
    global_round=1,
    edge_round=1,
    edge=0,
    device=0,
    name="a",
    fate="ok",
    reason=None,
    share=0.5,
    rate_bps=5e6,
    full_band_rate_bps=1e7,
    planned_compute_s=0.2,
    compute_s=0.25,
    planned_uplink_s=0.16,
    uplink_s=0.2,
    planned_bytes=100_000,
    bytes=100_000,
    rtt_s=0.01,
    arrived_s=0.45,
    deadline_s=0.5,
    num_samples=100,
    digest="ab",
)


class Pretended(Environment):
    """Devices that come and go, with rates and speeds of their own, of which some uploads are lost.

    Measured times are the planned ones with some noise. It writes what a real cloud writes. `gone` are edges that go
    away, by global round.
    """

    def __init__(
        self, folder: Path, *, trouble: float = 0.15, seed: int = 0, gone: Mapping[int, int] | None = None
    ) -> None:
        self._folder = RunFolder(folder)
        self._trouble = trouble
        self._seed = seed
        self._gone = gone or {}
        self._log: MeasuredLog | None = None
        self._inputs: PlannedInputs | None = None

    def _rng(self, round_index: int, what: int) -> np.random.Generator:
        return np.random.default_rng((self._seed, round_index, what))

    def candidates(self, experiment, state, candidates, cpu_hz):
        number = experiment.round_index(state)
        if self._log is None:
            self._log = MeasuredLog(self._folder, next_round=number)
        rng = self._rng(number, 0)
        here = rng.random(len(candidates.device)) > 0.5 * self._trouble
        here[:1] |= not here.any()
        device = candidates.device[here]
        speed = np.random.default_rng(self._seed).uniform(0.5, 2.0, experiment.network.num_devices)
        whole_s = experiment.compute.training_s(
            np.array(float(experiment.shape.num_weights)), device, experiment.network.cpu_hz[device]
        )
        per_sample_s = speed[device] * whole_s / experiment.scenario.train.samples_seen(experiment.data_sizes[device])
        self._inputs = PlannedInputs(
            round=number,
            global_round=state.global_round + 1,
            edge_round=state.edge_round + 1,
            device=tuple(device.tolist()),
            edge=tuple(candidates.edge[here].tolist()),
            full_band_rate_bps=tuple(
                (candidates.full_band_rate_bps[here] * rng.uniform(0.6, 1.1, len(device))).tolist()
            ),
            seconds_per_sample=tuple(per_sample_s.tolist()),
            num_samples=tuple(experiment.data_sizes[device].tolist()),
        )
        self._log.planned(self._inputs)
        return met_candidates(experiment, candidates, self._inputs)

    def lost(self, round_index: int) -> Mapping[int, str]:
        return {device: recorded_fate(fate) for device, fate in self._fates(round_index).items()}

    def _fates(self, round_index: int) -> Mapping[int, str]:
        rng = self._rng(round_index, 1)
        draws = rng.random(10_000)
        assert self._inputs is not None
        return {n: FATES[n % 3] for n in self._inputs.device if draws[n] < self._trouble}

    def play(self, experiment, engine, state, timed, groups):
        results = super().play(experiment, engine, state, timed, groups)
        assert self._inputs is not None and self._log is not None
        rows = measured_rows(timed, self._inputs, self._fates(self._inputs.round), self._rng(self._inputs.round, 2))
        gone = self._gone.get(self._inputs.global_round)
        self._log.measured([replace(row, edge_out=row.edge == gone or None) for row in rows])
        return results

    def out(self, state):
        gone = self._gone.get(state.global_round + 1)
        return None if gone is None else np.arange(len(state.edge_states)) == gone


def measured_rows(timed: Any, inputs: PlannedInputs, lost: Mapping[int, str], rng: Any) -> list[MeasuredRow]:
    planned, rows = timed.planned, []
    for n in np.flatnonzero(planned.in_plan):
        device, planned_s = int(planned.device[n]), float(timed.compute_s[n] + timed.uplink_s[n])
        fate = lost.get(device, "ok")
        compute_s = float(timed.compute_s[n] * rng.normal(1.02, 0.03))
        uplink_s = float(timed.uplink_s[n] * rng.normal(1.03, 0.05))
        arrived_s = {"late": 1.25 * planned.deadline_s, "dropped": None}.get(fate, min(compute_s + uplink_s, planned_s))
        size = int(np.ceil(planned.bits[n] / 8))
        rows.append(
            MeasuredRow(
                round=inputs.round,
                global_round=inputs.global_round,
                edge_round=inputs.edge_round,
                edge=int(planned.edge[n]),
                device=device,
                name=f"device-{device}",
                fate=fate,
                reason=None if fate == "ok" else f"The upload was {fate}.",
                share=float(planned.share[n]),
                rate_bps=float(planned.share[n] * planned.full_band_rate_bps[n]),
                full_band_rate_bps=float(planned.full_band_rate_bps[n]),
                planned_compute_s=float(timed.compute_s[n]),
                compute_s=None if fate == "dropped" else compute_s,
                planned_uplink_s=float(timed.uplink_s[n]),
                uplink_s=None if fate == "dropped" else uplink_s,
                planned_bytes=size,
                bytes=None if fate == "dropped" else size,
                rtt_s=0.004 + 0.001 * device,
                arrived_s=arrived_s,
                deadline_s=float(planned.deadline_s),
                num_samples=40,
                digest=None if fate == "dropped" else "00" * 16,
            )
        )
    return rows


def pretend(folder: Path, scenario: Scenario | None = None, **changes: Any) -> Path:
    """The run folder of a deployment that has ended."""
    for _ in pretended_records(folder, tiny(**changes) if scenario is None else scenario):
        pass
    write_status(RunFolder(folder), status_of(4, state="ended"))
    return folder


def pretended_records(folder: Path, scenario: Scenario, **options: Any):
    return records_of(Experiment.of(scenario), RunFolder(folder), Pretended(folder, **options))


def status_of(num_devices: int, *, state: str = "running", age_s: float = 0.0, away: Sequence[int] = (1,)) -> Status:
    edges = [NodeStatus(name=f"edge-{k}", role="edge", online=True, seen_s=time.time(), rtt_s=0.002) for k in range(2)]
    devices = [
        NodeStatus(
            name=f"device-{n}",
            role="device",
            edge=f"edge-{n % 2}",
            online=n not in away,
            home=f"edge-{n % 2}",
            seen_s=time.time() - (42.0 if n in away else 0.4),
            rtt_s=0.004 + 0.001 * n,
            late=n % 3,
            refused=int(n == 2),
            last_fate="dropped" if n in away else "ok",
        )
        for n in range(num_devices)
    ]
    return Status(
        run="yard-seed0",
        federation="yard",
        state=state,
        global_round=2,
        edge_round=1,
        num_rounds=2,
        updated_s=time.time() - age_s,
        nodes=(*edges, *devices),
    )
