"""The network under an app's messages: what each exchange between server and clients takes in seconds, bits and joules.

An exchange is planned before the clients work (selection, bandwidth shares, kept shares), and settled afterwards, when
their work and their replies are known. Plans, times, energies and records are those of every other run: `rounds`. Needs
neither Flower nor torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from airprune.components.component import ModelShape, Owner, Tensor
from airprune.components.layers import PrunableLayers
from airprune.errors import InvalidValue
from airprune.methods.aggregation.over_the_air import OverTheAir
from airprune.methods.association.base import Served
from airprune.methods.compression.base import Wire
from airprune.methods.masking.core.coverage import Coverage
from airprune.methods.outcome import Outcome
from airprune.methods.selection.base import Candidates
from airprune.methods.selection.everyone import Everyone
from airprune.planning.schemes.no_pruning import NoPruning
from airprune.planning.schemes.work_scheme import WorkScheme
from airprune.rounds.cloud import Backhaul, count_links, latency_s
from airprune.rounds.compute_times import ComputeTimes
from airprune.rounds.downlink import with_downlink
from airprune.rounds.edge import select_and_plan
from airprune.rounds.method import Method
from airprune.rounds.planning_context import PlannedRound, PlanningContext, select_only
from airprune.rounds.recording import count_edge_round, downlink_totals, edge_record, global_record
from airprune.rounds.reserve import reserve_for
from airprune.rounds.state import RunState
from airprune.rounds.stations import Stations
from airprune.rounds.sums import DeviceStatistics, EdgeResult
from airprune.rounds.timing import DeviceOutcome, TimedRound, sample_events, time_round, with_idle_energy
from airprune.runs.writer import finite
from airprune.scenario import Scenario

Array = np.ndarray

TOPOLOGIES = ("flat", "hierarchical")
# Of a model that no message has shown yet.
_BITS = 32.0


@dataclass(frozen=True)
class ModelSize:
    """The arrays of a message: names and shapes, and their bits in all."""

    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    bits: float

    @property
    def num_weights(self) -> int:
        return sum(int(np.prod(shape)) for _, shape in self.tensors)

    def shape(self) -> ModelShape:
        """Returns the layout for planners: arrays of two dimensions or more may be pruned, the others are always sent.

        A model without such arrays may be pruned as a whole.
        """
        matrices = [(name, shape) for name, shape in self.tensors if len(shape) > 1 and np.prod(shape) > 0]
        matrices = matrices or [("model", (1, max(self.num_weights, 1)))]
        layers = PrunableLayers.of((name, shape[0], int(np.prod(shape[1:]))) for name, shape in matrices)
        fixed = max(self.num_weights - layers.num_weights, 0)
        total = fixed + layers.num_weights
        tensors = (Tensor("fixed", 0, fixed, True), Tensor("prunable", fixed, total, True))
        return ModelShape(
            num_state=total, num_parameters=total, prunable=slice(fixed, total), layers=layers, tensors=tensors
        )


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of one client on its message, and the size of its reply.

    Attributes:
      compute_s: on its device.
      bits, num_weights: of its reply, as charged.
      num_samples: that it has.
      passes: samples that it trained on, each once per epoch.
      loss: its own training loss; NaN if it gives none.
      failed: whether it raised an error; then nothing is sent.
    """

    device: int
    compute_s: float
    bits: float
    num_weights: int = 0
    num_samples: int = 0
    passes: int = 0
    loss: float = np.nan
    failed: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Orders:
    """A planned exchange. Only devices in `device` are to work; messages to others are not sent.

    Attributes:
      device: ascending.
      kept_share: share of the prunable weights that each may send.
      bits_per_weight: at so many bits each.
      has_plan: whether these come from a plan, rather than being all of the model.
    """

    context: PlanningContext
    served: Served
    candidates: Candidates
    planned: PlannedRound
    message: str
    has_model: bool
    device: Array
    kept_share: Array
    bits_per_weight: Array
    deadline_s: float
    has_plan: bool


class Air:
    """The network of a scenario, its clock, and the rounds so far.

    Attributes:
      state: rounds and totals; its one-entry model stands for the app's, which the app keeps.
      num_samples: D_n as clients have reported them.  [num_devices]
      expected_s: compute time of each device as last seen; NaN before.  [num_devices]
      num_trainings, trainings_of_round: exchanges of training since the start, and in this global round.
    """

    def __init__(self, scenario: Scenario) -> None:
        if scenario.topology.name not in TOPOLOGIES:
            rule = f"must be one of {', '.join(TOPOLOGIES)} for a Flower app"
            raise InvalidValue("Scenario.topology.name", rule, repr(scenario.topology.name))
        self.scenario = scenario
        self.network = scenario.build_network()
        self.radio = scenario.build_radio()
        self.method = Method.of(scenario)
        if isinstance(self.method.scheme, WorkScheme):
            rule = "must be a scheme without local steps for a Flower app, which does not show its steps before it runs"
            raise InvalidValue("Scenario.plan.scheme", rule, repr(scenario.plan.scheme), "Example: optimal")
        if isinstance(self.method.edge, OverTheAir):
            rule = f"must not be {self.method.edge.name!r} for a Flower app, whose strategy adds updates up itself"
            raise InvalidValue("Scenario.aggregation.edge", rule, repr(self.method.edge.name), 'Example: "masked-mean"')
        self.tree = self.method.topology.build(np.array(scenario.edge_rounds_on(self.network)))
        self.num_samples = np.ones(self.network.num_devices, dtype=np.int64)
        self.expected_s = np.full(self.network.num_devices, np.nan)
        self.use(ModelSize((), 0.0))
        self.state = RunState.initial(np.zeros(1), self.tree, (), self.shape)
        self.state.values = self._initial_values()
        self.num_trainings = self.trainings_of_round = 0
        self._served: tuple[int, Served] | None = None

    def use(self, model: ModelSize) -> None:
        """Makes the model of the coming exchanges known."""
        self._model = model
        for name in ("shape", "wire", "backhaul", "stations", "_context"):
            self.__dict__.pop(name, None)

    @cached_property
    def shape(self) -> ModelShape:
        return self._model.shape().on(
            num_devices=self.network.num_devices,
            num_edges=self.network.num_edges,
            num_antennas=self.radio.num_antennas,
        )

    @cached_property
    def wire(self) -> Wire:
        bits = self._model.bits / max(self._model.num_weights, 1)
        return Wire.of(self.shape, value_bits=bits or _BITS)

    @cached_property
    def backhaul(self) -> Backhaul:
        return Backhaul(
            compression=self.method.backhaul,
            wire=self.wire,
            shape=self.shape,
            seed=self.scenario.seed,
            sends_down=self.radio.charges_downlink,
        )

    @property
    def counts_links(self) -> bool:
        return self.radio.charges_downlink and self.network.topology != "flat"

    @cached_property
    def stations(self) -> Stations:
        return Stations(
            network=self.network,
            radio=self.radio,
            context=self._context,
            level=self.tree.levels[-1],
            model_bits=self.backhaul.bits + self.backhaul.down_bits,
            data_sizes=self.num_samples,
            seed=self.scenario.seed,
            motion=self.scenario.build_motion(self.network, self.radio),
        )

    @cached_property
    def _context(self) -> PlanningContext:
        plan, layers = self.scenario.plan, self.shape.layers
        most = 1.0 - layers.num_rows / layers.num_weights  # each unit keeps a weight
        return PlanningContext(
            plan=plan,
            clock=self.scenario.clock,
            radio=self.radio,
            method=self.method,
            shape=self.shape,
            wire=self.wire,
            compute=self._expected(),
            max_pruning_ratio=max(min(plan.max_pruning_ratio, most), plan.min_pruning_ratio),
            min_pruning_ratio=plan.min_pruning_ratio,
            link_share_s=self.tree.link_share_s(self.backhaul.bits + self.backhaul.down_bits)
            if self.radio.charges_downlink
            else None,
            reserve=reserve_for(plan.on_time, self.scenario.events, knows_fading=self.radio.knows_fading),
        )

    def _expected(self) -> ComputeTimes:
        """Compute times that a plan reckons with: as last seen; of devices not seen, the mean by their clocks.

        They do not depend on what is kept: a client decides itself what it computes.
        """
        cpu_hz, seen = self.network.cpu_hz, ~np.isnan(self.expected_s)
        cycles = np.where(seen, self.expected_s * cpu_hz, 0.0)
        cycles[~seen] = cycles[seen].mean() if seen.any() else 0.0
        return ComputeTimes(
            passes=cycles, cycles_per_weight=0.0, fixed_cycles=1.0, num_weights=self.shape.num_weights, probe_cycles=0.0
        )

    def _initial_values(self) -> dict[str, Array]:
        slots = [*self._plan_slots(), *self.method.channel.slots(self.shape)]
        slots = [slot for slot in slots if slot.owner != Owner.DEVICE]
        rows = {slot.name: slot.row(self.shape) for slot in slots}
        for slot in slots:
            if slot.owner == Owner.EDGE:
                rows[slot.name] = np.stack([rows[slot.name]] * self.network.num_edges)
        return rows | self.stations.initial_values

    def _plan_slots(self) -> list[Any]:
        parts = (self.method.selection, self.method.weighting, self.method.scheme)
        return [slot for part in parts for slot in part.slots(self.shape)]

    @property
    def round_index(self) -> int:
        """Exchanges of training since the start, without the one under way; fading and selection follow it."""
        return max(self.num_trainings - 1, 0)

    @property
    def closes_global_round(self) -> bool:
        """True if the cloud has its turn: as many trainings as a global round has are done."""
        return self.trainings_of_round >= self.tree.max_rounds(0)

    def plan(self, devices: Sequence[int], message: str, *, model: ModelSize | None, timeout_s: float) -> Orders:
        """Plans an exchange with these devices.

        Args:
          message: its type, `train` or another; devices are selected and given a plan for training alone.
          model: the arrays that it carries; None: none.
          timeout_s: what the app itself waits at the most.
        """
        trains = message == "train"
        if trains:
            self.num_trainings += 1
            self.trainings_of_round += 1
        if model is not None and model != self._model:
            self.use(model)
        context = replace(self._context, compute=self._expected())
        plan = self.scenario.plan
        if plan.deadline_s != "auto":
            context = replace(
                context, plan=plan.model_copy(update={"deadline_s": float(min(plan.deadline_s, timeout_s))})
            )
        if not trains:
            method = replace(self.method, selection=Everyone(), scheme=NoPruning())
            context = replace(context, method=method)
        served, values = self._serve(), self.state.values
        edges = np.unique(served.edge[np.asarray(devices, dtype=np.int64)])
        memory = {slot.name: values[slot.name] for slot in self._plan_slots()}
        candidates = self.stations.candidates(served, edges, self.round_index, memory, values, self.state.clock_s)
        candidates = select_only(candidates, np.isin(candidates.device, devices))
        planned = select_and_plan(
            context.bounded(values), candidates, self.network.cpu_hz[candidates.device], self.round_index
        )
        kept = planned.keep / self.shape.prunable_weights
        bits = np.full(len(kept), self.wire.value_bits)
        if planned.bits_per_weight is not None:
            bits = planned.bits_per_weight
        in_plan = planned.in_plan
        return Orders(
            context=context,
            served=served,
            candidates=candidates,
            planned=planned,
            message=message,
            has_model=model is not None,
            device=planned.device[in_plan],
            kept_share=kept[in_plan],
            bits_per_weight=bits[in_plan],
            deadline_s=planned.deadline_s,
            has_plan=trains and (self.method.scheme.adapts or planned.deadline_s < timeout_s),
        )

    def _serve(self) -> Served:
        """Returns the association; with the fading it is decided once for a training and what follows it."""
        number = self.round_index
        if self._served is None or self._served[0] != number:
            starts = self.trainings_of_round <= 1
            served, self.state.values = self.stations.served(
                self.state.values, number, starts=starts, time_s=self.state.clock_s
            )
            self._served = number, served
        return self._served[1]

    def settle(self, orders: Orders, work: Sequence[Work], **extra: Any) -> tuple[dict[str, Any], set[int]]:
        """Closes an exchange; returns its record, with `extra` fields, and the devices whose replies arrive.

        Args:
          work: of the devices that were to work, in their order.
        """
        timed = self._timed(orders, work)
        trains = orders.message == "train"
        results = _results(timed, [one for one in work if trains and not one.failed])
        if trains:
            self._learn(orders, timed, work)
        self.state.close_edge_round(timed, results)
        before = (self.state.totals.round_devices, self.state.totals.round_left_out, self.state.totals.round_ratio_sum)
        power_w = self.radio.downlink_power_w
        count_edge_round(self.state.totals, timed, results, station_power_w=power_w)
        if not trains:  # a global round counts those that train
            totals = self.state.totals
            totals.left_out -= totals.round_left_out - before[1]
            totals.round_devices, totals.round_left_out, totals.round_ratio_sum = before
        present = [int(edge) for edge in np.unique(timed.planned.edge[timed.takes_part])]
        at_edges = [result for result in results if len(result.statistics.device)] if trains else []
        record = edge_record(
            self.state,
            timed,
            present if trains else [],
            at_edges,
            len(orders.candidates.device),
            station_power_w=power_w,
        )
        arrived = set(timed.planned.device[timed.takes_part].tolist())
        return finite(record | {"message": orders.message} | extra), arrived

    def _timed(self, orders: Orders, work: Sequence[Work]) -> TimedRound:
        """Returns the exchange by the clock, with the work and the replies as they are."""
        planned, context = orders.planned, orders.context
        place = np.searchsorted(planned.device, [one.device for one in work])
        compute_s, bits = np.zeros(len(planned.device)), np.zeros(len(planned.device))
        compute_s[place] = [one.compute_s for one in work]
        bits[place] = [one.bits for one in work]
        planned = replace(planned, bits=bits, compute_s=compute_s)
        if orders.candidates.true_rates_bps is not None:
            planned = replace(planned, true_rate_bps=orders.candidates.true_rates_bps(planned.device))
        events = sample_events(
            self.scenario.events,
            planned.device,
            self.network.num_devices,
            seed=self.scenario.seed,
            global_round=self.state.global_round,
            edge_round=self.state.edge_round,
        )
        if orders.served.interrupted is not None:
            events = replace(events, dropped=events.dropped | orders.served.interrupted[planned.device])
        timed = time_round(context, planned, events, strict=True)
        if orders.has_model:
            timed = with_downlink(context, timed, orders.candidates)
        failed = np.zeros(len(bits), dtype=bool)
        failed[place] = [one.failed for one in work]
        if failed.any():
            outcome = np.where(failed, DeviceOutcome.FAILED.value, timed.outcome)
            timed = replace(timed, outcome=outcome, uploaded_bits=np.where(failed, 0.0, timed.uploaded_bits))
        return with_idle_energy(context, timed, np.zeros(len(bits)))

    def _learn(self, orders: Orders, timed: TimedRound, work: Sequence[Work]) -> None:
        """Keeps what the devices have shown, and hands it to selection and scheme."""
        loss = np.full(len(timed.planned.device), np.nan)
        for one in work:
            self.expected_s[one.device] = one.compute_s
            if one.num_samples:
                self.num_samples[one.device] = one.num_samples
            loss[np.searchsorted(timed.planned.device, one.device)] = one.loss
        device = timed.planned.device
        outcome = Outcome(
            candidates=orders.candidates,
            device=device,
            edge=timed.planned.edge,
            num_samples=self.num_samples[device],
            arrived=timed.takes_part,
            latency_s=timed.total_s,
            loss=np.where(timed.takes_part, loss, np.nan),
            keep=timed.planned.keep,
            step=self.state.edge_round,
            starts_global_round=self.trainings_of_round == 1,
            uploaded_bits=timed.uploaded_bits,
            bits_per_weight=timed.planned.bits_per_weight,
        )
        for part in (self.method.selection, self.method.association, self.method.weighting, self.method.scheme):
            self.state.values = self.state.values | part.after_edge_round(outcome, self.state.values)

    def close_global_round(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Closes a global round; returns its record, with what the app has measured."""
        state = self.state
        took_s = float(latency_s(self, state, 0)[0])
        if count_links(self, state, 0) is not None:
            metrics = {"backhaul_bits": state.totals.backhaul_bits} | metrics
        if self.radio.charges_downlink:
            metrics = downlink_totals(state.totals) | metrics
        state.totals.time_s += took_s
        record = global_record(state, took_s, metrics)
        state.close_global_round()
        self.trainings_of_round = 0
        return finite(record)


def _results(timed: TimedRound, work: Sequence[Work]) -> list[EdgeResult]:
    """Returns the edges' results as far as records need them; the models are the app's own."""
    planned, none = timed.planned, np.zeros(0)
    edge_of = dict(zip(planned.device.tolist(), planned.edge.tolist(), strict=True))
    arrived = set(planned.device[timed.takes_part].tolist())
    results = []
    for edge in planned.edges.tolist():
        own = [one for one in work if edge_of[one.device] == edge and one.device in arrived]
        rows = [(one.device, one.num_weights, one.bits, np.nan, one.loss, one.passes, *[np.nan] * 4) for one in own]
        results.append(
            EdgeResult(
                combined=none,
                held=none.astype(bool),
                kept_by=none,
                coverage=Coverage(histogram=(0, *[0] * (len(own) - 1), 1) if own else (0,)),
                statistics=DeviceStatistics.of(rows),
                failures=(),
                reports={},
            )
        )
    return results
