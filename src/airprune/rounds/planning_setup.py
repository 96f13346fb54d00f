"""A scenario as far as rounds are planned with it: network, radio, method, shape of the model, stations.

`Experiment` adds what trains: samples, weights, kernels. `PlannedNetwork` has none of them, for plans alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from airprune.components.component import ModelShape, Owner, Slot
from airprune.errors import InvalidValue
from airprune.methods.association.base import Served
from airprune.methods.compression.base import Wire
from airprune.methods.selection.base import Candidates
from airprune.methods.topology import Topology, Tree
from airprune.planning.deadline import FIRST_KAPPA
from airprune.planning.periods import local_steps_at
from airprune.planning.schemes.work_scheme import WorkScheme
from airprune.rounds.cloud import Backhaul
from airprune.rounds.compute_times import ComputeTimes, compute_times
from airprune.rounds.method import Method
from airprune.rounds.parts import (
    KAPPA,
    LOSSES,
    BestMetric,
    DecayingSteps,
    HeardSamples,
    MedianDevice,
    Part,
    StationInbox,
    TunedDeadline,
)
from airprune.rounds.planning_context import PlanningContext
from airprune.rounds.rates import round_rate
from airprune.rounds.reserve import reserve_for
from airprune.rounds.state import Place, RunState
from airprune.rounds.stations import Stations
from airprune.rounds.work import LocalWork
from airprune.scenario import Scenario
from airprune.wireless.channel import Radio
from airprune.wireless.device_speed.work import ModelWork
from airprune.wireless.network import Network

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanningSetup(ABC):
    """Holds what plans and their clock need of a scenario, and what never changes during a run."""

    scenario: Scenario
    network: Network
    radio: Radio
    method: Method

    @property
    @abstractmethod
    def shape(self) -> ModelShape:
        """Shape of the model and the network, as components see it."""

    @property
    @abstractmethod
    def data_sizes(self) -> Array:
        """D_n, the number of training samples of each device.  [num_devices]"""

    @property
    @abstractmethod
    def work(self) -> ModelWork:
        """The model's FLOPs per sample."""

    @property
    @abstractmethod
    def start_weights(self) -> Array:
        """The weights that a run starts with."""

    @cached_property
    def max_pruning_ratio(self) -> float:
        """The scenario's cap, lowered if need be so that each unit of the prunable layers keeps a weight.

        Without that, a plan could remove the classifier of a small model.
        """
        settings, layers = self.scenario.plan, self.shape.layers
        limit = 1.0 - layers.num_rows / layers.num_weights
        if settings.min_pruning_ratio > limit:
            raise InvalidValue(
                "Scenario.plan.min_pruning_ratio",
                f"must be ≤ {limit:.4f} so that each of the model's {layers.num_rows} units keeps a weight",
                settings.min_pruning_ratio,
            )
        return min(settings.max_pruning_ratio, limit)

    @cached_property
    def wire(self) -> Wire:
        """Settings of a device's encoder."""
        return Wire.of(self.shape, value_bits=self.scenario.plan.bits_per_weight)

    @cached_property
    def compute(self) -> ComputeTimes:
        """Compute times of all devices."""
        return compute_times(
            self.scenario,
            self.method.masking,
            shape=self.shape,
            num_samples=self.data_sizes,
            cpu_hz=self.network.cpu_hz,
            work=lambda: self.work,
            seconds_per_sample=self.network.seconds_per_sample,
        )

    @cached_property
    def context(self) -> PlanningContext:
        return PlanningContext(
            plan=self.scenario.plan,
            clock=self.scenario.clock,
            radio=self.radio,
            method=self.method,
            shape=self.shape,
            wire=self.wire,
            compute=self.compute,
            max_pruning_ratio=self.max_pruning_ratio,
            min_pruning_ratio=self.scenario.plan.min_pruning_ratio,
            float64=self.scenario.model.float64,
            link_share_s=self.tree.link_share_s(self.backhaul.bits + self.backhaul.down_bits)
            if self.radio.charges_downlink
            else None,
            local_work=self._local_work,
            reserve=reserve_for(self.scenario.plan.on_time, self.scenario.events, knows_fading=self.radio.knows_fading),
        )

    @property
    def _local_work(self) -> LocalWork | None:
        """Settings of local training, for schemes that choose parts and local steps."""
        scheme = self.method.scheme
        if not isinstance(scheme, WorkScheme):
            return None
        return LocalWork.of(
            self.scenario.train,
            scheme,
            self.shape,
            mean_samples=float(np.mean(self.data_sizes)),
            flops=None if self.scenario.clock.compute == "paper" else self.work,
            seed=self.scenario.seed,
        )

    def place(self, state: RunState) -> Place:
        """Returns the indices and settings of the edge round to come."""
        steps, step = self.local_steps(state), self.step_index(state)
        return Place(
            global_round=state.global_round,
            counters=tuple(state.counters),
            step=step,
            round_index=state.global_round * self._rounds_per_global_round + step,
            edges=np.flatnonzero(self.tree.active(self.tree.depth - 1, state.counters)),
            learning_rate=self.learning_rate(state),
            local_steps=steps,
            context=self.context if steps is None else self._context_of(steps),
        )

    def _context_of(self, steps: Array) -> PlanningContext:
        """Returns the context with the compute times of this many local steps.  [num_devices]"""
        train, sizes = self.scenario.train, self.data_sizes
        if self.scenario.clock.compute == "paper":
            share = steps / np.maximum(train.steps(sizes), 1.0)
        else:
            share = train.samples_seen(sizes, steps) / np.maximum(train.samples_seen(sizes), 1.0)
        return replace(self.context, compute=replace(self.compute, passes=self.compute.passes * share))

    def local_steps(self, state: RunState) -> Array | None:
        """τ_n(t) of every device in this global round; None where it is τ_n(0).  [num_devices]"""
        if LOSSES not in state.values or not state.values[LOSSES][0]:
            return None
        first, last = state.values[LOSSES].tolist()
        rate_ratio = self.scenario.train.learning_rate / self.learning_rate(state)
        whole = self.scenario.train.steps(self.data_sizes).astype(np.int64)
        found = [local_steps_at(n, loss_ratio=last / first, rate_ratio=rate_ratio) for n in whole.tolist()]
        return np.minimum(found, whole)

    @cached_property
    def tree(self) -> Tree:
        return self.method.topology.build(np.array(self.scenario.edge_rounds_on(self.network)))

    @cached_property
    def own_parts(self) -> tuple[Part, ...]:
        """Parts whose state the driver keeps beside the components', as far as this scenario needs them."""
        scenario, num_edges = self.scenario, self.network.num_edges
        found: list[Part] = []
        if self.method.cloud.counts == "heard":
            found.append(HeardSamples(num_edges))
        if scenario.plan.deadline_s == "auto":
            found.append(TunedDeadline(scenario.plan.error_cost))
        if scenario.train.steps_decay == "loss":
            found.append(DecayingSteps())
        if self.method.topology.overrides(Topology.root):
            found.append(StationInbox(num_edges))
        if scenario.diagnostics.sub_models:
            found.append(MedianDevice())
        if (stop := scenario.stop).watches_metric:
            found.append(BestMetric(stop.metric, stop.direction, stop.min_improvement))
        return tuple(found)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return self.method.slots(self.shape)

    def slot_names(self, owner: Owner) -> list[str]:
        return [slot.name for slot in self.slots if slot.owner == owner]

    def initial_state(self) -> RunState:
        """Returns the state before the first round."""
        state = RunState.initial(
            self.start_weights.copy(),
            self.tree,
            self.slots,
            self.shape,
            tracks_held=self.method.cloud_step.name != "replace",
        )
        state.values |= self.stations.initial_values
        for part in self.own_parts:
            state.values |= part.initial_values()
        return state

    def kappa(self, state: RunState) -> float:
        """κ as estimated so far: how much fewer bits slow learning down."""
        return float(state.values[KAPPA][0]) if KAPPA in state.values else FIRST_KAPPA

    def learning_rate(self, state: RunState) -> float:
        """η of this edge round; of a global round, if the schedule follows those."""
        return round_rate(
            self.scenario.train,
            global_round=state.global_round,
            global_rounds=self.scenario.rounds.global_rounds,
            round_index=self.round_index(state),
            num_rounds=self.num_rounds,
        )

    def step_index(self, state: RunState) -> int:
        """Edge rounds since the start of the global round."""
        index = 0
        for level, count in enumerate(state.counters):
            index = index * self.tree.max_rounds(level) + count
        return index

    def round_index(self, state: RunState) -> int:
        """Edge rounds since the start of the run."""
        return state.global_round * self._rounds_per_global_round + self.step_index(state)

    @cached_property
    def num_rounds(self) -> int:
        """Edge rounds of the whole run."""
        return self.scenario.rounds.global_rounds * self._rounds_per_global_round

    @cached_property
    def _rounds_per_global_round(self) -> int:
        return int(np.prod([self.tree.max_rounds(level) for level in range(self.tree.depth)]))

    @cached_property
    def backhaul(self) -> Backhaul:
        """Links and compression above the edges."""
        return Backhaul(
            compression=self.method.backhaul,
            wire=self.wire,
            shape=self.shape,
            seed=self.scenario.seed,
            extra_bits=float(self.method.objective.upload_bits(self.shape, self.wire.value_bits)),
            sends_down=self.radio.charges_downlink,
        )

    @cached_property
    def stations(self) -> Stations:
        """Association of devices with stations, and their channels."""
        return Stations(
            network=self.network,
            radio=self.radio,
            context=self.context,
            level=self.tree.levels[-1],
            model_bits=self.backhaul.bits + self.backhaul.down_bits,
            data_sizes=self.data_sizes,
            seed=self.scenario.seed,
            motion=self.scenario.build_motion(self.network, self.radio),
        )

    def served(self, at: Place, state: RunState) -> Served:
        """Returns the association of this round; decides anew where it changes, and keeps that in `state`."""
        served, state.values = self.stations.served(
            state.values, at.round_index, starts=at.starts_global_round, time_s=state.clock_s
        )
        return served

    def candidates(self, at: Place, state: RunState, served: Served) -> tuple[Candidates, Array]:
        """Returns (the devices of the round's edges as known before planning, their CPU clocks)."""
        parts = (self.method.selection, self.method.weighting, self.method.scheme)
        memory = {slot.name: state.values[slot.name] for part in parts for slot in part.slots(self.shape)}
        candidates = self.stations.candidates(served, at.edges, at.round_index, memory, state.values, state.clock_s)
        return candidates, self.network.cpu_hz[candidates.device]
