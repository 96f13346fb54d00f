"""Runs the cloud's rounds with edges on other machines: `Deployed` is the environment of a deployment.

Plans, shares and pacing are of payload: of a link that was measured, WIRE_OVERHEAD is taken off first.

The cloud goes through the very lines of Algorithm 1 that a simulation does. What it sends an edge is the plan of its
devices; the model stays at the edge between its rounds and travels up when the cloud combines, or earlier where the
method looks at it. What a restarted cloud must know of its edges is kept with the state of the run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from airprune.components.component import Owner
from airprune.deployment.bounds import most_rate_bps
from airprune.deployment.checks import MAX_WORDS, checked_report
from airprune.deployment.cloud_estimates import (
    as_values,
    due_probes,
    first_beside,
    learn,
    load_estimates,
    slowdown_of,
)
from airprune.deployment.cloud_inputs import InputMaker, plan_trouble
from airprune.deployment.estimates import PROBE_EVERY_ROUNDS, Estimates
from airprune.deployment.explosions import (
    REPORT,
    bad_buffers,
    exploding,
    is_left_to_scenario,
    length_of,
    length_of_report,
    moves_in_round,
    trained_weights,
)
from airprune.deployment.histories import first_histories, planned_with, remember
from airprune.deployment.hub import Hub
from airprune.deployment.hub_edges import Order, Report
from airprune.deployment.loop_thread import LoopThread
from airprune.deployment.measured_rows import measured_rows, row_of_lost_edge
from airprune.deployment.node_status import missing_sentence
from airprune.deployment.pacing import WIRE_OVERHEAD
from airprune.deployment.packing import ReportArrays, RoundArrays, Station
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.replay import met_candidates
from airprune.deployment.run_definition import RunDefinition
from airprune.engines.base import Engine
from airprune.errors import WorkFailed
from airprune.methods.masking import Masking
from airprune.methods.masking.core.coverage import coverage_of
from airprune.methods.selection.base import Candidates
from airprune.rounds.experiment import Experiment
from airprune.rounds.state import RunState
from airprune.rounds.sums import DeviceStatistics, EdgeResult, Failure
from airprune.rounds.timing import DeviceOutcome, TimedRound
from airprune.rounds.training.chunks import EdgeGroup, Started
from airprune.rounds.wire import Part, upload_size
from airprune.runs.measured import MeasuredRow, PlannedInputs, recorded_fate
from airprune.simulation import Environment
from airprune.text import plain

Array = np.ndarray
Checked = tuple[pb.EdgeReport, ReportArrays]
_log = logging.getLogger("airprune")

# Names among a run's values. Of each edge: the digest of what it holds, whether the cloud has not got that, whether it
# is out of the global round; of each device: the edge round of its last upload that counted.
_DIGEST, _AWAY, _OUT, _COUNTED = "world/digest", "world/away", "world/out", "world/counted"
# What checking an upload that came in time may take.
_CHECKING_S = 0.1


@dataclass(frozen=True, kw_only=True)
class CloudSettings:
    """Settings of the cloud process.

    Attributes:
      measures: whether plans go by measured rates and speeds; else by the scenario's network and clock.
      measures_uplink: with `measures`, whether that goes for the rates too; else devices keep to the network's.
      grace_s: how long after the deadline uploads are still taken.
      patience_s: how long an edge may be unreachable, or late with its report, before the round goes on without it.
      wait_s: how long to wait for all devices before the first round, and later for any.
      handover_s: how long to wait for a device that is sent to another edge.
      probe_every: rounds without a measurement of an uplink after which it is probed.
    """

    measures: bool = True
    measures_uplink: bool = True
    grace_s: float = 0.0
    patience_s: float = 60.0
    wait_s: float = 600.0
    handover_s: float = 10.0
    probe_every: int = PROBE_EVERY_ROUNDS


class Deployed(Environment):
    """Reaches edges through a hub, from the thread that runs the rounds.

    Args:
      planned: the inputs of rounds that an earlier process has planned already, by number.
      on_planned, on_measured: called with what a round is planned with, before it goes out, and with its outcome.
      on_serving: called with the edges that serve, when a standby edge has taken another's place.
    """

    keeps_memory = False

    def __init__(
        self,
        hub: Hub,
        loop: LoopThread,
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
        self._maker = InputMaker(
            hub.members.all_devices, measures=settings.measures, measures_uplink=settings.measures_uplink
        )
        self._current: PlannedInputs | None = None
        self._extra_s: dict[int, float | None] = {}

    def values(self, experiment: Experiment) -> dict[str, Array]:
        num_edges, num_devices = experiment.network.num_edges, experiment.network.num_devices
        return {
            _DIGEST: np.zeros((num_edges, 16), dtype=np.uint8),
            _AWAY: np.zeros(num_edges, dtype=bool),
            _OUT: np.zeros(num_edges, dtype=bool),
            _COUNTED: np.full(num_devices, -1, dtype=np.int64),
            **as_values(Estimates.unknown(num_devices)),
            **(first_beside(num_devices) if experiment.method.scheme.chooses_work else {}),
            **({} if experiment.scenario.plan.on_time is None else first_histories(num_devices)),
        }

    def out(self, state: RunState) -> Array | None:
        return state.values[_OUT]

    # Before a round

    def candidates(
        self, experiment: Experiment, state: RunState, candidates: Candidates, cpu_hz: Array
    ) -> tuple[Candidates, Array]:
        """Returns the devices that are online, at the edges that serve them, with measured rates if plans use them."""
        if not any(state.counters):
            state.values[_OUT] = np.zeros_like(state.values[_OUT])
            self._settle()
            for replaced, standby in self._loop.call(self._hub.take_standby()):
                _log.warning("%s is unreachable; %s takes its place.", replaced, standby)
                self._on_serving(self._hub.serving)
        self._loop.call(self._hub.refresh_denied())
        round_index = experiment.round_index(state)
        inputs = self._planned.get(round_index)
        if inputs is not None and (trouble := plan_trouble(experiment, state, candidates, inputs)):
            _log.warning("The recorded inputs of round %d have no plan, and are made anew: %s", round_index, trouble)
            inputs = None
        if inputs is None:
            inputs = self._inputs(experiment, state, candidates)
        elif inputs.restarts:
            state.values[_OUT] = np.zeros_like(state.values[_OUT])
        self._current = inputs
        self._extra_s = dict(zip(inputs.device, inputs.extra_s or (), strict=False))
        return met_candidates(experiment, candidates, inputs)

    def _settle(self) -> None:
        self._loop.call(self._hub.settle(self._settings.patience_s, self._settings.handover_s))

    def _inputs(self, experiment: Experiment, state: RunState, candidates: Candidates) -> PlannedInputs:
        wanted = dict(zip(candidates.device.tolist(), candidates.edge.tolist(), strict=True))
        restarts = bool(state.values[_OUT].all())
        if restarts:
            _log.warning("All edges have been unreachable; this global round goes on from the cloud's model.")
            state.values[_OUT] = np.zeros_like(state.values[_OUT])
        self._settle()
        homes = {device: edge for device, edge in wanted.items() if not state.values[_OUT][edge]}
        self._loop.call(self._hub.place(homes, self._settings.handover_s))
        ends_s, is_logged = time.monotonic() + self._settings.wait_s, False
        while not (present := self._present(state, wanted)):
            if time.monotonic() > ends_s:
                missing = self._loop.call(_in_loop(lambda: missing_sentence(self._hub)))
                raise WorkFailed(
                    f"No device has been online for {self._settings.wait_s:g} s: {missing} Start them and resume."
                )
            if not is_logged:
                _log.warning("No device is online; waiting for %g s.", self._settings.wait_s)
                is_logged = True
            self._loop.call(asyncio.sleep(0.2))
        return self._maker.inputs(experiment, state, candidates, present, restarts=restarts)

    def _present(self, state: RunState, wanted: Container[int]) -> dict[int, tuple[int, pb.Presence.Device]]:
        """Returns the wanted devices that are online; those of an edge that is out wait for the next global round."""
        out = state.values[_OUT]
        return {d: found for d, found in self._hub.present().items() if d in wanted and not out[found[0]]}

    # A round

    def play(
        self, experiment: Experiment, engine: Engine, state: RunState, timed: TimedRound, groups: Sequence[Started]
    ) -> list[EdgeResult]:
        assert self._current is not None
        self._on_planned(self._current)  # there is a plan, and no orders were sent
        orders = {edge: self._order(experiment, state, timed, edge, group) for edge, _, group in groups}
        idle = self._idle(experiment, state, orders)
        orders |= {edge: self._order_for_model(experiment, state, edge) for edge in idle}
        played = self._loop.call(self._hub.run_round(orders, self._settings.patience_s))
        reports = self._checked(experiment, state, orders, self._with_models(experiment, state, orders, played))
        results, rows, names = [], list[MeasuredRow](), self._hub.members.all_devices
        for edge in idle:
            if (known := reports[edge]) is not None:
                self._take_station(state, edge, known)
            else:
                self._lost_edge(experiment, state, edge, [])
                device = int(np.argmax(experiment.network.edge == edge))
                rows.append(row_of_lost_edge(orders[edge][0], edge, device, names[device]))
        for edge, _, group in groups:
            report = reports[edge]
            results.append(self._result(experiment, state, edge, group, report))
            message = None if report is None else report[0]
            served_by = self._hub.serving[edge]
            rows += measured_rows(
                timed, edge, *orders[edge], message, names=names, served_by=served_by, extra_s=self._extra_s
            )
        messages = [report[0] for report in reports.values() if report is not None]
        if self._settings.measures:
            planned_s = None
            if experiment.scenario.plan.on_time is not None and (used := self._current) is not None:
                planned_s = planned_with(used.device, used.seconds_per_sample, experiment.network.num_devices)
                remember(state, rows, [slowdown_of(row) for row in rows], planned_s)
            learn(state, rows, messages, planned_s)
        self._on_measured(rows, max((message.took_s for message in messages), default=0.0))
        return results

    def _order(self, experiment: Experiment, state: RunState, timed: TimedRound, edge: int, group: EdgeGroup) -> Order:
        """Returns the edge's orders, with its model only if it holds another one than the cloud's."""
        planned, values = timed.planned, state.values
        station = None
        if values[_AWAY][edge]:
            digest = values[_DIGEST][edge].tobytes().hex()
        else:
            own = self._station(experiment, state, edge)
            digest = own.digest
            station = own if digest != values[_DIGEST][edge].tobytes().hex() else None
        rates_bps = self._pace_bps(state, timed)
        task = group.tasks[0]
        waits_s = max(planned.deadline_s, float(np.nanmax(timed.edge_latency_s)))
        # As planned: how long the real one takes shows at the edge.
        downlink_s = 0.0 if timed.downlink_s is None else float(timed.downlink_s.max())
        message = pb.EdgeRound(
            run=self._hub.welcome.run,
            global_round=task.global_round,
            edge_round=task.edge_round,
            round_index=task.round_index,
            learning_rate=task.learning_rate,
            deadline_s=downlink_s + waits_s + self._settings.grace_s,
            grace_s=_CHECKING_S,
            model_digest=digest,
            sends_model=self._sends_model(experiment, state, edge),
            served_weight=group.served_weight,
            chunk_sizes=[len(task.devices) for task in group.tasks],
            cohort=() if task.cohort is None else task.cohort.devices,
        )
        for task in group.tasks:
            for number, device in enumerate(task.devices):
                place = int(np.searchsorted(planned.device, device))
                code = None if task.code is None else task.code[number]
                first_trained = 0 if task.first_trained is None else task.first_trained[number]
                last_trained = None if task.last_trained is None else task.last_trained[number]
                message.orders.append(
                    pb.DeviceOrders(
                        device=device,
                        keep=task.keep[number],
                        weight=task.weights[number],
                        code=code,
                        rate_bps=float(rates_bps[place]),
                        max_bytes=self._max_bytes(task.keep[number], code, (first_trained, last_trained)),
                        last_counted=int(values[_COUNTED][device]),
                        planned_compute_s=float(timed.compute_s[place]),
                        planned_uplink_s=float(planned.bits[place] / rates_bps[place]),
                        local_steps=None if task.local_steps is None else task.local_steps[number],
                        first_trained=first_trained,
                        last_trained=last_trained,
                    )
                )
        if self._settings.measures and self._settings.measures_uplink:
            served = [device for device, (place, _) in self._hub.present().items() if place == edge]
            message.probes.extend(due_probes(state, served, every=self._settings.probe_every))
        arrays = RoundArrays(station=station, mask=group.shared.mask, values=group.shared.values)
        return message, arrays.to_bytes()

    def _idle(self, experiment: Experiment, state: RunState, ordered: Container[int]) -> list[int]:
        """Returns edges without selected devices in this round whose model the cloud needs after it."""
        away = np.flatnonzero(state.values[_AWAY] & ~state.values[_OUT]).tolist()
        return [edge for edge in away if edge not in ordered and self._sends_model(experiment, state, edge)]

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

    @property
    def _most_bps(self) -> float:
        return most_rate_bps(self._work.scenario.radio.bandwidth_hz)

    def _pace_bps(self, state: RunState, timed: TimedRound) -> Array:
        """Returns b_n r_n, without the margin of plans where r_n was measured: it is time in reserve.  [num_devices]"""
        planned = timed.planned
        rates_bps = planned.full_band_rate_bps
        if self._settings.measures and self._settings.measures_uplink:
            measured_bps = load_estimates(state).uplink_bps(margin_ratio=0.0)[planned.device] / WIRE_OVERHEAD
            measured_bps = np.minimum(measured_bps, self._most_bps)
            rates_bps = np.where(np.isnan(measured_bps), rates_bps, measured_bps)
        return np.asarray(planned.share * rates_bps)

    def _max_bytes(self, keep: int, code: int | None, part: Part) -> int:
        work = self._work
        num_sent = min(work.shape.fixed_weights + keep, work.shape.weights_above(*part))
        size = upload_size(work.codec, num_sent, code=code, has_mask=True, part=part)
        return size + work.report_bytes

    def _station(self, experiment: Experiment, state: RunState, edge: int) -> Station:
        slots = {name: state.values[name][edge] for name in experiment.slot_names(Owner.EDGE)}
        return Station(model=state.edge_states[edge], slots=slots)

    def _sends_model(self, experiment: Experiment, state: RunState, edge: int) -> bool:
        """True if the edge's parent combines after this round, or the method reads its model before."""
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
        """Sends edges that report another model the cloud's, if the cloud has it; else they are out."""
        again: dict[int, Order] = {}
        for edge, report in reports.items():
            if report is not None and report[0].trouble:
                _log.warning("%s: %s", self._hub.serving[edge], plain(report[0].trouble, MAX_WORDS))
                reports[edge] = None
                if not state.values[_AWAY][edge]:
                    message, payload = orders[edge]
                    arrays = replace(RoundArrays.from_bytes(payload), station=self._station(experiment, state, edge))
                    again[edge] = message, arrays.to_bytes()
        if again:
            reports |= self._loop.call(self._hub.run_round(again, self._settings.patience_s))
        for edge in again:
            if (report := reports[edge]) is not None and report[0].trouble:
                reason = f"It was sent the model, and reports: {plain(report[0].trouble, MAX_WORDS)}"
                self._loop.call(self._hub.refuse_report(self._hub.serving[edge], reason))
        return reports

    def _checked(
        self,
        experiment: Experiment,
        state: RunState,
        orders: dict[int, Order],
        reports: dict[int, Report | None],
    ) -> dict[int, Checked | None]:
        """Refuses an edge whose report cannot be; it is out as one that is unreachable, and may dial again."""
        num_samples = dict(enumerate(experiment.data_sizes.tolist()))
        for device, (_, said) in self._hub.present().items():  # it may have more by now
            num_samples[device] = max(num_samples[device], said.num_samples)
        checked: dict[int, Checked | None] = dict.fromkeys(reports)
        for edge, report in reports.items():
            if report is None or report[0].trouble:
                continue
            try:
                checked[edge] = report[0], checked_report(*report, orders[edge][0], self._work, num_samples)
            except WorkFailed as bad:
                self._loop.call(self._hub.refuse_report(self._hub.serving[edge], str(bad)))
        for edge, reason in self._exploding(experiment, state, checked).items():
            checked[edge] = None
            self._loop.call(self._hub.refuse_report(self._hub.serving[edge], reason))
        return checked

    def _exploding(
        self, experiment: Experiment, state: RunState, checked: Mapping[int, Checked | None]
    ) -> dict[int, str]:
        """Returns why models that edges report would blow up the cloud's, by edge."""
        shape, names = experiment.shape, experiment.method.objective.gradients
        known = {edge: found[1] for edge, found in checked.items() if found is not None}
        counts = {edge: max(len(arrays.statistics.device), 1) for edge, arrays in known.items()}
        moves = moves_in_round(
            experiment.scenario.train, experiment.place(state).learning_rate, experiment.data_sizes.tolist()
        )
        reported = {
            edge: length.scaled(moves / counts[edge])
            for edge, arrays in known.items()
            if (length := length_of_report(arrays.reports, names, state.global_state, shape)) is not None
        }
        reasons = exploding(reported, REPORT)
        if not is_left_to_scenario(experiment.scenario, experiment.method.cloud):
            models = {edge: arrays.station.model for edge, arrays in known.items() if arrays.station is not None}
            lengths = {e: length_of(own, state.global_state, trained_weights(shape)) for e, own in models.items()}
            reasons |= bad_buffers({e: own[shape.num_parameters :] for e, own in models.items()}, shape)
            reasons |= exploding(lengths)
        return reasons

    def _result(
        self, experiment: Experiment, state: RunState, edge: int, group: EdgeGroup, report: Checked | None
    ) -> EdgeResult:
        devices = [device for task in group.tasks for device in task.devices]
        if report is None:
            return self._lost_edge(experiment, state, edge, devices)
        message, arrays = report
        self._take_station(state, edge, report)
        outcomes = {outcome.device: outcome for outcome in message.outcomes}
        counted = [device for device in devices if outcomes[device].fate == DeviceOutcome.OK]
        state.values[_COUNTED][counted] = message.round_index
        failures = tuple(
            Failure(
                device,
                outcomes[device].reason,
                recorded_fate(outcomes[device].fate),
                refused=outcomes[device].fate == "refused",
            )
            for device in devices
            if outcomes[device].fate != DeviceOutcome.OK
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
        """Excludes an edge from this global round; its model goes back to the cloud's."""
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
            failures=tuple(
                Failure(device, f"{name} was unreachable.", str(DeviceOutcome.DROPPED)) for device in devices
            ),
            reports={},
        )


async def _in_loop(function: Callable[[], str]) -> str:
    return function()
