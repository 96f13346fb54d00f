"""The cloud's rounds with edges that are somewhere else: `Deployed` is the environment of a deployment.

Plans, shares and pacing are of payload: of a link that was measured, WIRE_OVERHEAD is taken off first.

The cloud goes through the very lines of Algorithm 1 that a simulation does. What it sends an edge is the plan of its
devices; the model stays at the edge between its rounds and travels up when the cloud combines, or earlier where the
method looks at it. What a restarted cloud must know of its edges is kept with the state of the run.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Container, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from airprune.components.component import Owner
from airprune.deployment.checking import MAX_WORDS, checked_report
from airprune.deployment.estimates import PROBE_EVERY_ROUNDS, Estimates, paced_uplink_bps
from airprune.deployment.hub import Hub, Order, Report
from airprune.deployment.link_times import WIRE_OVERHEAD
from airprune.deployment.packing import ReportArrays, RoundArrays, Station, order_digest
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.replaying import met_candidates
from airprune.deployment.run_definition import RunDefinition
from airprune.engines.base import Engine
from airprune.errors import WorkFailed
from airprune.methods.masking import Masking
from airprune.methods.masking.core.coverage import coverage_of
from airprune.methods.selection.base import Candidates
from airprune.rounds.experiment import Experiment
from airprune.rounds.state import RunState
from airprune.rounds.sums import DeviceStatistics, EdgeResult, Failure
from airprune.rounds.timing import Fate, TimedRound
from airprune.rounds.training.chunks import EdgeGroup, Started
from airprune.rounds.wire import upload_size
from airprune.runs.measured import MeasuredRow, PlannedInputs, recorded_fate
from airprune.simulation import Environment
from airprune.text import printable

Array = np.ndarray
T = TypeVar("T")
Checked = tuple[pb.EdgeReport, ReportArrays]
_log = logging.getLogger("airprune")

# Names among a run's values. Of each edge: the digest of what it holds, whether the cloud has not got that, whether it
# is out of the global round; of each device: the edge round of its last upload that counted.
_DIGEST, _AWAY, _OUT, _COUNTED = "world/digest", "world/away", "world/out", "world/counted"
_ESTIMATES = "world/estimates."
# What checking an upload that came in time may take.
_CHECKING_S = 0.1
# Devices of an edge that are probed after a round, at the most: it has to wait for them.
_MOST_PROBES = 3


@dataclass(frozen=True, kw_only=True)
class CloudSettings:
    """How the cloud process behaves.

    Attributes:
      measures: whether plans go by measured rates and speeds; else by the scenario's network and clock.
      grace_s: how long after the deadline uploads are still taken.
      patience_s: how long an edge may stay away before the round goes on without it.
      wait_s: how long to wait for all devices before the first round.
      handover_s: how long to wait for a device that is sent to another edge.
      probe_every: rounds without news of an uplink after which it is probed.
    """

    measures: bool = True
    grace_s: float = 0.0
    patience_s: float = 60.0
    wait_s: float = 600.0
    handover_s: float = 10.0
    probe_every: int = PROBE_EVERY_ROUNDS


class Deployed(Environment):
    """Edges that are reached through a hub, from the thread that runs the rounds.

    Args:
      planned: the inputs of rounds that an earlier process has planned already, by number.
      on_planned, on_measured: told what a round is planned with, before it goes out, and what became of it.
      on_serving: told which edges serve, when a standby edge has taken another's place.
    """

    keeps_memory = False

    def __init__(
        self,
        hub: Hub,
        loop: asyncio.AbstractEventLoop,
        work: RunDefinition,
        settings: CloudSettings,
        *,
        planned: dict[int, PlannedInputs],
        on_planned: Callable[[PlannedInputs], None],
        on_measured: Callable[[Sequence[MeasuredRow], float], None],
        on_serving: Callable[[Sequence[str]], None],
    ) -> None:
        self._hub, self._loop, self._work, self._settings = hub, loop, work, settings
        self._planned, self._on_planned, self._on_measured = planned, on_planned, on_measured
        self._on_serving = on_serving

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()

    def values(self, experiment: Experiment) -> dict[str, Array]:
        num_edges, num_devices = experiment.network.num_edges, experiment.network.num_devices
        estimates = Estimates.unknown(num_devices).arrays()
        return {
            _DIGEST: np.zeros((num_edges, 16), dtype=np.uint8),
            _AWAY: np.zeros(num_edges, dtype=bool),
            _OUT: np.zeros(num_edges, dtype=bool),
            _COUNTED: np.full(num_devices, -1, dtype=np.int64),
            **{_ESTIMATES + name: array for name, array in estimates.items()},
        }

    def out(self, state: RunState) -> Array | None:
        return state.values[_OUT]

    # Before a round

    def candidates(
        self, experiment: Experiment, state: RunState, candidates: Candidates, cpu_hz: Array
    ) -> tuple[Candidates, Array]:
        """Those who are there, at the edges where they are, with measured rates if plans go by them."""
        if not any(state.counters):
            state.values[_OUT] = np.zeros_like(state.values[_OUT])
            self._call(self._settle())
            for _, gone, standby in self._call(self._take_standby()):
                _log.warning("%s stays away; %s takes its place.", gone, standby)
                self._on_serving(self._hub.serving)
        self._call(self._hub.refresh_denied())
        round_index = experiment.round_index(state)
        inputs = self._planned.get(round_index)
        if inputs is None:
            inputs = self._inputs(experiment, state, candidates, round_index)
        elif inputs.restarts:
            state.values[_OUT] = np.zeros_like(state.values[_OUT])
        self._on_planned(inputs)
        return met_candidates(experiment, candidates, inputs)

    async def _settle(self) -> None:
        await self._hub.settle(self._settings.patience_s, self._settings.handover_s)

    async def _take_standby(self) -> list[tuple[int, str, str]]:
        return self._hub.take_standby()

    def _inputs(
        self, experiment: Experiment, state: RunState, candidates: Candidates, round_index: int
    ) -> PlannedInputs:
        wanted = dict(zip(candidates.device.tolist(), candidates.edge.tolist(), strict=True))
        restarts = bool(state.values[_OUT].all())
        if restarts:
            _log.warning("All edges have been away; this global round goes on from the cloud's model.")
            state.values[_OUT] = np.zeros_like(state.values[_OUT])
        self._call(self._settle())
        homes = {device: edge for device, edge in wanted.items() if not state.values[_OUT][edge]}
        self._call(self._hub.place(homes, self._settings.handover_s))
        is_told = False
        while not (present := self._present(state, wanted)):
            if not is_told:
                _log.warning("No device is online; waiting.")
                is_told = True
            self._call(asyncio.sleep(0.2))
        device = np.array(sorted(present), dtype=np.int64)
        rates_bps = candidates.full_band_rate_bps[np.searchsorted(candidates.device, device)]
        seconds = None
        if self._settings.measures:
            estimates = self._with_probes(state, present)
            measured_bps, seconds_s = estimates.uplink_bps()[device], estimates.seconds_per_sample()[device]
            rates_bps = np.where(np.isnan(measured_bps), rates_bps, measured_bps / WIRE_OVERHEAD)
            seconds = tuple(None if math.isnan(s) else s for s in seconds_s.tolist())
        return PlannedInputs(
            round=round_index,
            global_round=state.global_round + 1,
            edge_round=experiment.step_index(state) + 1,
            device=tuple(device.tolist()),
            edge=tuple(present[d][0] for d in device.tolist()),
            full_band_rate_bps=tuple(rates_bps.tolist()),
            seconds_per_sample=seconds,
            restarts=restarts or None,
        )

    def _present(self, state: RunState, wanted: Container[int]) -> dict[int, tuple[int, pb.Presence.Device]]:
        """Those of an edge that is out have to wait for the next global round."""
        out = state.values[_OUT]
        return {d: found for d, found in self._hub.present().items() if d in wanted and not out[found[0]]}

    def _with_probes(self, state: RunState, present: dict[int, tuple[int, pb.Presence.Device]]) -> Estimates:
        """The estimates, with what devices have said at joining where nothing better is known, or nothing for long.

        The latter is for devices that once were too slow to be asked: nobody would ever know that they are not.
        """
        estimates = self._estimates(state)
        size = len(estimates.uplink.value)
        uplink_bps, seconds = np.full(size, np.nan), np.full(size, np.nan)
        is_old = estimates.speed.age >= PROBE_EVERY_ROUNDS
        for device, (_, measured) in present.items():
            if np.isnan(estimates.uplink.value[device]) and measured.uplink_bps > 0:
                uplink_bps[device] = measured.uplink_bps
            if is_old[device] and measured.seconds_per_sample > 0:
                seconds[device] = measured.seconds_per_sample
        if not (np.isnan(uplink_bps).all() and np.isnan(seconds).all()):
            estimates = estimates.updated(uplink_bps=uplink_bps, seconds_per_sample=seconds)
            self._keep(state, estimates)
        return estimates

    def _estimates(self, state: RunState) -> Estimates:
        prefix = _ESTIMATES
        named = {name.removeprefix(prefix): a for name, a in state.values.items() if name.startswith(prefix)}
        return Estimates.from_arrays(named)

    def _keep(self, state: RunState, estimates: Estimates) -> None:
        state.values |= {_ESTIMATES + name: array for name, array in estimates.arrays().items()}

    # A round

    def play(
        self, experiment: Experiment, engine: Engine, state: RunState, timed: TimedRound, groups: Sequence[Started]
    ) -> list[EdgeResult]:
        orders = {edge: self._order(experiment, state, timed, edge, group) for edge, _, group in groups}
        idle = self._idle(experiment, state, orders)
        orders |= {edge: self._order_for_model(experiment, state, edge) for edge in idle}
        played = self._call(self._hub.play(orders, self._settings.patience_s))
        reports = self._checked(orders, self._with_models(experiment, state, orders, played))
        results, rows = [], list[MeasuredRow]()
        for edge in idle:
            if (known := reports[edge]) is not None:
                self._take_station(state, edge, known)
            else:
                self._lost_edge(experiment, state, edge, [])
                rows.append(self._row_of_lost(experiment, orders[edge][0], edge))
        for edge, _, group in groups:
            report = reports[edge]
            results.append(self._result(experiment, state, edge, group, report))
            rows += self._rows(timed, edge, orders[edge], None if report is None else report[0])
        self._learn(experiment, state, rows, [report[0] for report in reports.values() if report is not None])
        took_s = max((report[0].took_s for report in reports.values() if report is not None), default=0.0)
        self._on_measured(rows, took_s)
        return results

    def _order(self, experiment: Experiment, state: RunState, timed: TimedRound, edge: int, group: EdgeGroup) -> Order:
        """What the edge is asked for; with its model only if it has another one than the cloud's."""
        opened, values = timed.opened, state.values
        station = None
        if values[_AWAY][edge]:
            digest = values[_DIGEST][edge].tobytes().hex()
        else:
            own = self._station(experiment, state, edge)
            digest = own.digest
            station = own if digest != values[_DIGEST][edge].tobytes().hex() else None
        rates_bps = self._pace_bps(state, timed)
        task = group.tasks[0]
        message = pb.EdgeRound(
            run=self._hub.welcome.run,
            global_round=task.global_round,
            edge_round=task.edge_round,
            round_index=task.round_index,
            learning_rate=task.learning_rate,
            deadline_s=max(opened.deadline_s, float(np.nanmax(timed.edge_latency_s))) + self._settings.grace_s,
            grace_s=_CHECKING_S,
            model_digest=digest,
            sends_model=self._sends_model(experiment, state, edge),
            served_weight=group.served_weight,
            chunk_sizes=[len(task.devices) for task in group.tasks],
        )
        for task in group.tasks:
            for number, device in enumerate(task.devices):
                place = int(np.searchsorted(opened.device, device))
                message.orders.append(
                    pb.DeviceOrders(
                        device=device,
                        keep=task.keep[number],
                        weight=task.weights[number],
                        code=None if task.code is None else task.code[number],
                        rate_bps=float(rates_bps[place]),
                        max_bytes=self._max_bytes(task.keep[number], None if task.code is None else task.code[number]),
                        last_counted=int(values[_COUNTED][device]),
                        planned_compute_s=float(timed.compute_s[place]),
                        planned_uplink_s=float(opened.bits[place] / rates_bps[place]),
                    )
                )
        message.probes.extend(self._probes(state, edge))
        arrays = RoundArrays(station=station, told=group.shared.mask, values=group.shared.values)
        return message, arrays.to_bytes()

    def _idle(self, experiment: Experiment, state: RunState, asked: Container[int]) -> list[int]:
        """Edges where nobody is asked in this round, but whose model the cloud needs after it."""
        away = np.flatnonzero(state.values[_AWAY] & ~state.values[_OUT]).tolist()
        return [edge for edge in away if edge not in asked and self._sends_model(experiment, state, edge)]

    def _order_for_model(self, experiment: Experiment, state: RunState, edge: int) -> Order:
        message = pb.EdgeRound(
            run=self._hub.welcome.run,
            global_round=state.global_round,
            edge_round=experiment.step_index(state),
            round_index=experiment.round_index(state),
            model_digest=state.values[_DIGEST][edge].tobytes().hex(),
            sends_model=True,
        )
        return message, b""

    def _probes(self, state: RunState, edge: int) -> list[pb.Probe]:
        """Of devices of which there was no news for longest."""
        if not self._settings.measures:
            return []
        estimates = self._estimates(state)
        is_due, age = estimates.probe_due(self._settings.probe_every), estimates.uplink.age
        due = [device for device, (place, _) in self._hub.present().items() if place == edge and is_due[device]]
        chosen = sorted(due, key=lambda device: -age[device])[:_MOST_PROBES]
        return [pb.Probe(device=device, bytes=estimates.probe_bytes(device)) for device in chosen]

    def _pace_bps(self, state: RunState, timed: TimedRound) -> Array:
        """b_n r_n, without the margin of plans where r_n was measured: that is time in reserve.  [num_devices]"""
        opened = timed.opened
        rates_bps = opened.full_band_rate_bps
        if self._settings.measures:
            measured_bps = self._estimates(state).uplink_bps(margin_ratio=0.0)[opened.device] / WIRE_OVERHEAD
            rates_bps = np.where(np.isnan(measured_bps), rates_bps, measured_bps)
        return np.asarray(opened.share * rates_bps)

    def _max_bytes(self, keep: int, code: int | None) -> int:
        work = self._work
        num_sent = work.shape.fixed_weights + keep
        return upload_size(work.codec, num_sent, code=code, has_mask=True) + work.report_bytes

    def _station(self, experiment: Experiment, state: RunState, edge: int) -> Station:
        slots = {name: state.values[name][edge] for name in experiment.slot_names(Owner.EDGE)}
        return Station(model=state.edge_states[edge], slots=slots)

    def _sends_model(self, experiment: Experiment, state: RunState, edge: int) -> bool:
        """When the edge's parent combines after this round, or somebody looks at its model before."""
        masking, diagnostics = experiment.method.masking, experiment.scenario.diagnostics
        looks = experiment.scenario.rounds.evaluate_every == "edge" or diagnostics.gradients
        looks |= masking.overrides(Masking.prepare) or masking.overrides(Masking.after_edge_round)
        looks |= masking.overrides(Masking.stays) or masking.overrides(Masking.evaluated)
        return looks or state.counters[-1] + 1 >= int(experiment.tree.levels[-1].rounds[edge])

    def _with_models(
        self,
        experiment: Experiment,
        state: RunState,
        orders: dict[int, Order],
        reports: dict[int, Report | None],
    ) -> dict[int, Report | None]:
        """Edges that say they have another model are sent the cloud's, if the cloud has it; else they are out."""
        again: dict[int, Order] = {}
        for edge, report in reports.items():
            if report is not None and report[0].trouble:
                _log.warning("%s: %s", self._hub.serving[edge], printable(report[0].trouble[:MAX_WORDS]))
                reports[edge] = None
                if not state.values[_AWAY][edge]:
                    message, payload = orders[edge]
                    arrays = replace(RoundArrays.from_bytes(payload), station=self._station(experiment, state, edge))
                    again[edge] = message, arrays.to_bytes()
        if again:
            reports |= self._call(self._hub.play(again, self._settings.patience_s))
        return reports

    def _checked(self, orders: dict[int, Order], reports: dict[int, Report | None]) -> dict[int, Checked | None]:
        """An edge whose report cannot be is refused, and is out as one that stays away; it may dial again."""
        checked: dict[int, Checked | None] = dict.fromkeys(reports)
        for edge, report in reports.items():
            if report is None or report[0].trouble:
                continue
            try:
                checked[edge] = report[0], checked_report(*report, orders[edge][0], self._work)
            except WorkFailed as bad:
                self._call(self._hub.refuse_report(self._hub.serving[edge], str(bad)))
        return checked

    def _result(
        self, experiment: Experiment, state: RunState, edge: int, group: EdgeGroup, report: Checked | None
    ) -> EdgeResult:
        devices = [device for task in group.tasks for device in task.devices]
        if report is None:
            return self._lost_edge(experiment, state, edge, devices)
        message, arrays = report
        self._take_station(state, edge, report)
        outcomes = {outcome.device: outcome for outcome in message.outcomes}
        counted = [device for device in devices if outcomes[device].fate == Fate.OK]
        state.values[_COUNTED][counted] = message.round_index
        failures = tuple(
            Failure(device, outcomes[device].reason, recorded_fate(outcomes[device].fate))
            for device in devices
            if outcomes[device].fate != Fate.OK
        )
        return arrays.result(state.edge_states[edge], failures)

    def _take_station(self, state: RunState, edge: int, report: Checked) -> None:
        """Notes what the edge holds now."""
        message, arrays = report
        state.values[_DIGEST][edge] = np.frombuffer(bytes.fromhex(message.model_digest), np.uint8)
        state.values[_AWAY][edge] = arrays.station is None
        if arrays.station is not None:
            state.edge_states[edge] = arrays.station.model
            for name, array in arrays.station.slots.items():
                state.values[name][edge] = array

    def _lost_edge(self, experiment: Experiment, state: RunState, edge: int, devices: list[int]) -> EdgeResult:
        """It is out of this global round; what it had goes back to the cloud's model."""
        name = self._hub.serving[edge]
        _log.warning("This global round goes on without %s.", name)
        state.values[_OUT][edge] = True
        state.values[_AWAY][edge] = False
        state.values[_DIGEST][edge] = 0
        state.edge_states[edge] = state.global_state
        kept_by = np.zeros(experiment.shape.prunable_weights, dtype=np.int64)
        return EdgeResult(
            combined=state.edge_states[edge],
            held=np.zeros(experiment.shape.num_state, dtype=bool),
            kept_by=kept_by,
            coverage=coverage_of(kept_by, 0),
            statistics=DeviceStatistics.of([]),
            failures=tuple(Failure(device, f"{name} stayed away.", str(Fate.DROPPED)) for device in devices),
            reports={},
        )

    # After a round

    def _rows(self, timed: TimedRound, edge: int, order: Order, report: pb.EdgeReport | None) -> list[MeasuredRow]:
        opened, (message, payload) = timed.opened, order
        orders_digest = order_digest(message, RoundArrays.from_bytes(payload))
        outcomes = {} if report is None else {outcome.device: outcome for outcome in report.outcomes}
        rows = []
        for orders in message.orders:
            place = int(np.searchsorted(opened.device, orders.device))
            outcome = outcomes.get(orders.device, pb.Outcome(fate=str(Fate.DROPPED), reason="Its edge stayed away."))
            started, came = outcome.HasField("started_s"), outcome.digest != ""
            rows.append(
                MeasuredRow(
                    round=message.round_index,
                    global_round=message.global_round + 1,
                    edge_round=message.edge_round + 1,
                    edge=edge,
                    device=orders.device,
                    name=self._hub.members.all_devices[orders.device],
                    fate=outcome.fate,
                    reason=outcome.reason or None,
                    share=float(opened.share[place]),
                    rate_bps=orders.rate_bps,
                    full_band_rate_bps=float(opened.full_band_rate_bps[place]),
                    planned_compute_s=orders.planned_compute_s,
                    compute_s=outcome.compute_s if started else None,
                    planned_uplink_s=orders.planned_uplink_s,
                    uplink_s=outcome.uplink_s if started else None,
                    planned_bytes=math.ceil(float(opened.bits[place]) / 8),
                    bytes=outcome.bytes if started else None,
                    rtt_s=outcome.rtt_s if came and math.isfinite(outcome.rtt_s) else None,
                    arrived_s=outcome.arrived_s if came else None,
                    deadline_s=message.deadline_s,
                    num_samples=None,
                    digest=outcome.digest or None,
                    edge_out=report is None,
                    served_by=self._hub.serving[edge],
                    orders_digest=orders_digest,
                    model_digest=None if report is None else report.model_digest,
                    started_s=outcome.started_s if started else None,
                )
            )
        return rows

    def _row_of_lost(self, experiment: Experiment, message: pb.EdgeRound, edge: int) -> MeasuredRow:
        """That an edge where nobody was asked has gone with its model, told of the first device at home there."""
        device = int(np.argmax(experiment.network.edge == edge))
        unknown: dict[str, Any] = dict.fromkeys(field.name for field in fields(MeasuredRow) if field.name != "extra")
        known: dict[str, Any] = {
            "round": message.round_index,
            "global_round": message.global_round + 1,
            "edge_round": message.edge_round + 1,
            "edge": edge,
            "device": device,
            "name": self._hub.members.all_devices[device],
            "fate": str(Fate.DROPPED),
            "reason": "Its edge stayed away.",
            "edge_out": True,
        }
        return MeasuredRow(**{**unknown, **known})

    def _learn(
        self, experiment: Experiment, state: RunState, rows: Sequence[MeasuredRow], reports: Sequence[pb.EdgeReport]
    ) -> None:
        """What the round and the probes after it say about links and speeds."""
        if not self._settings.measures:
            return
        estimates = self._estimates(state)
        size = experiment.network.num_devices
        uplink_bps, seconds, probed_bps = (np.full(size, np.nan) for _ in range(3))
        planned_s = estimates.seconds_per_sample()
        for row in rows:
            uplink_bps[row.device] = _uplink_bps(row)
            seconds[row.device] = planned_s[row.device] * _slowdown(row)
        for report in reports:
            for probed in report.probed:
                probed_bps[probed.device] = probed.uplink_bps
        uplink_bps = np.fmin(uplink_bps, estimates.raised_by(probed_bps))
        self._keep(state, estimates.updated(uplink_bps=uplink_bps, seconds_per_sample=seconds))


def _uplink_bps(row: MeasuredRow) -> float:
    """What an upload says about the full band; of one that is under way, what has come of it does."""
    if row.bytes is None or not row.uplink_s or not row.rate_bps or not row.share:
        return math.nan
    measured_bps = 8.0 * row.bytes / row.uplink_s
    if row.bytes == 0:  # slower than planned, by how much is not known
        measured_bps = 0.5 * row.rate_bps
    found = paced_uplink_bps(WIRE_OVERHEAD * measured_bps, planned_bps=WIRE_OVERHEAD * row.rate_bps, share=row.share)
    return float(found)


def _slowdown(row: MeasuredRow) -> float:
    """Measured over planned, of all that comes before the upload: the model's way down is in it, and the ledger."""
    if row.started_s is not None and row.planned_compute_s:
        return row.started_s / row.planned_compute_s
    # A late one that has not even begun is slower, by how much is not known.
    return 2.0 if row.fate == Fate.LATE else math.nan
