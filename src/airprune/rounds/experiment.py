"""A scenario made concrete: network, radio, the partition of samples, the starting model, the method."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import cloudpickle
import numpy as np

from airprune.components.component import Component, ModelShape, Owner, Slot
from airprune.data import Dataset, Holdings
from airprune.data.holdings import Claimed
from airprune.errors import InvalidValue
from airprune.methods.association.base import Served
from airprune.methods.compression.base import Wire
from airprune.methods.registration import setup_payload
from airprune.methods.selection.base import Candidates, Selection
from airprune.methods.topology import Topology, Tree
from airprune.models.input_dictionary import taking
from airprune.models.kernels import kernel_for
from airprune.models.kernels.devices import device_named
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY
from airprune.models.losses.own import Criteria, criteria_of, named
from airprune.models.names import HIDDEN
from airprune.models.scores import giving_scores
from airprune.models.start_weights import load_start
from airprune.planning.deadline import FIRST_KAPPA
from airprune.planning.periods import local_steps_at
from airprune.planning.schemes.work_scheme import WorkScheme
from airprune.randomness import rng_for
from airprune.rounds.attacks import Attack, flip_labels
from airprune.rounds.checks import check_method, check_model, check_training
from airprune.rounds.cloud import Backhaul
from airprune.rounds.compute_times import ComputeTimes, compute_times
from airprune.rounds.local import LocalSettings
from airprune.rounds.method import Method
from airprune.rounds.model_source import ModelSource, PlainSource, source_of
from airprune.rounds.own_training import Training, named_training
from airprune.rounds.parts import (
    HEARD,
    KAPPA,
    LOSSES,
    BestMetric,
    DecayingSteps,
    HeardSamples,
    Hooks,
    MedianDevice,
    Part,
    StationInbox,
    TunedDeadline,
)
from airprune.rounds.planning_context import PlanningContext
from airprune.rounds.rates import round_rate
from airprune.rounds.relayed import Positions
from airprune.rounds.sending import samples_like
from airprune.rounds.state import Place, RunState
from airprune.rounds.stations import Stations
from airprune.rounds.timing import TimedRound
from airprune.rounds.training.worker import Job
from airprune.rounds.work import LocalWork
from airprune.scenario import Scenario
from airprune.scenario.data import classes_of, dataset_of, held_out_by_device, samples_by_device
from airprune.wireless.channel import Radio
from airprune.wireless.device_speed.work import ModelWork
from airprune.wireless.network import Network

Array = np.ndarray

# Fewest test samples of a device that has a model of its own.
_OWN_TEST = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """All that a run needs and that never changes during it.

    Attributes:
      model: the starting model; its weight counts feed the planner.
      source: where workers get it from.
      samples: indices of each device's training samples.
      kernel: what computes gradients here: a name of KERNELS.
      criteria: the loss that is minimised, and what models are evaluated by.
      training: the loop, the optimiser and the augmentation of devices.
      device: what the kernel computes on.
    """

    scenario: Scenario
    network: Network
    radio: Radio
    dataset: Dataset
    model: LocalModel
    source: ModelSource
    samples: Holdings
    kernel: str
    method: Method
    criteria: Criteria
    training: Training
    device: str = "cpu"

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        *,
        model: Any = None,
        dataset: Any = None,
        loss: Any = None,
        metric: Any = None,
        train: Any = None,
        optimizer: Any = None,
        kernel: str | None = None,
    ) -> Experiment:
        """Builds it from a scenario; `model` (of torch), `dataset` and the functions replace its own, see `run`.

        Where the scenario leaves kernel and device open, they are `kernel`: those of the run to be continued, if there
        is one, as `used` has them.
        """
        scenario = named_training(named(scenario, loss, metric), train, optimizer)
        scenario.check_names()
        criteria, training = criteria_of(scenario, loss, metric), Training.of(scenario, train, optimizer)
        kernel, device = _device(scenario, kernel)
        network = scenario.build_network()
        data = dataset_of(scenario, dataset, targets=criteria.loss.targets)
        criteria = criteria.with_accuracy(data.num_classes)
        wanted = (kernel or "auto") if scenario.train.kernel == "auto" else scenario.train.kernel
        if data.fields and model is None:
            names = ", ".join(one.name for one in data.fields)
            raise InvalidValue("run.model", f"must be given for samples of several inputs, {names}", None)
        with taking(model, data.fields), giving_scores(model, data.train_x):
            source = source_of(
                scenario,
                data.train_x,
                data.train_y,
                num_outputs=data.num_outputs,
                kernel=wanted,
                by_accuracy=criteria.is_accuracy,
                module=model,
            )
        flat = source.open()
        if scenario.model.start is not None:
            load_start(flat, scenario.model.start)
        samples = samples_by_device(scenario, data, network)
        attack = Attack.of(scenario.attack, network.num_devices, scenario.seed)
        if attack is not None and not attack.replaces:
            data = flip_labels(attack, data, samples, is_shared=scenario.data.samples_per_device is not None)
        method = Method.of(scenario)
        check_method(scenario, method, shape=flat.shape, num_devices=network.num_devices)
        check_training(scenario, training, method, data.train_x, device)
        is_own = model is not None or dataset is not None or scenario.model.name not in HIDDEN
        if not isinstance(source, PlainSource) and (is_own or scenario.train.loss != CROSS_ENTROPY):
            check_model(source, data, criteria, samples.sizes, scenario)
        return cls(
            scenario=scenario,
            network=network,
            radio=scenario.build_radio(),
            dataset=data,
            model=flat,
            source=source,
            samples=samples,
            kernel=kernel_for(
                wanted,
                flat,
                data.train_x,
                data.train_y,
                loss=scenario.train.loss,
                device=device,
                teaches=method.masking.teaches,
                needs_module=training.needs_module,
            ),
            method=method,
            criteria=criteria,
            training=training,
            device=device,
        )

    @property
    def used(self) -> str:
        """The kernel, and what it computes on unless that is the CPU: `torch:cuda`."""
        return self.kernel if self.device == "cpu" else f"{self.kernel}:{self.device}"

    @property
    def identity(self) -> str:
        """A digest of the data set and the starting weights, which a checkpoint belongs to beyond the scenario."""
        digest = hashlib.sha256(self.dataset.fingerprint.encode())
        digest.update(self.model.state_array.tobytes())
        return digest.hexdigest()

    @cached_property
    def max_pruning_ratio(self) -> float:
        """The scenario's cap, lowered if need be so that each unit of the prunable layers keeps a weight.

        Without that, a plan could remove the classifier of a small model.
        """
        settings, layers = self.scenario.plan, self.model.layers
        limit = 1.0 - layers.num_rows / layers.num_weights
        if settings.min_pruning_ratio > limit:
            raise InvalidValue(
                "Scenario.plan.min_pruning_ratio",
                f"must be ≤ {limit:.4f} so that each of the model's {layers.num_rows} units keeps a weight",
                settings.min_pruning_ratio,
            )
        return min(settings.max_pruning_ratio, limit)

    @cached_property
    def shape(self) -> ModelShape:
        """Shape of the model and the network, as components see it."""
        return self.model.shape.on(
            num_devices=self.network.num_devices,
            num_edges=self.network.num_edges,
            num_antennas=self.radio.num_antennas,
        )

    @cached_property
    def wire(self) -> Wire:
        """Settings of a device's encoder."""
        return Wire.of(self.shape, value_bits=self.scenario.plan.bits_per_weight)

    @cached_property
    def work(self) -> ModelWork:
        """The model's FLOPs per sample."""
        from airprune.wireless.device_speed.flops import count_work  # by torch

        names = [layer.name for layer in self.model.layers]
        return count_work(self.source.module(), self.dataset.train_x[0], names)

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
    def parts(self) -> tuple[Hooks, ...]:
        """Everything with hooks after a round, in order: masking and objective, which look at models, come first."""
        method = self.method
        learning = (method.masking, method.objective)
        planning = (method.selection, method.association, method.weighting, method.scheme)
        combining = (method.compression, method.edge, method.cloud, method.topology)
        return (
            *filter(_sees_rounds, learning),
            *self.own_parts,
            *filter(_sees_rounds, (*planning, *combining)),
        )

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return self.method.slots(self.shape)

    def slot_names(self, owner: Owner) -> list[str]:
        return [slot.name for slot in self.slots if slot.owner == owner]

    def initial_state(self) -> RunState:
        """Returns the state before the first round."""
        state = RunState.initial(
            self.model.state_array.copy(),
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

    def has_ended(self, state: RunState) -> bool:
        """True if no round is left: all have been run, the run was stopped, or training has diverged.

        A diverged run closes its global round first.
        """
        is_closed = not any(state.counters)
        is_over = state.global_round >= self.scenario.rounds.global_rounds or bool(state.stopped)
        return is_over or (bool(state.diverged) and is_closed)

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
    def attack(self) -> Attack | None:
        """Attack of the scenario, if it has attackers."""
        return Attack.of(self.scenario.attack, self.network.num_devices, self.scenario.seed)

    @cached_property
    def reported_suspects(self) -> set[int]:
        """Suspected devices that the user has read of."""
        return set()

    @cached_property
    def reported_failures(self) -> set[int]:
        """Devices whose failure the user has read."""
        return set()

    def recorded(self, at: Place, timed: TimedRound) -> Array | None:
        """Returns the places, among the selected devices, of those listed in the round's record, ascending; None: all.

        Sampled anew in every round, independently of the selection.
        """
        wanted = self.scenario.records.devices
        num_selected = len(timed.planned.device)
        if wanted == "all" or num_selected <= wanted:
            return None
        rng = rng_for(self.scenario.seed, "records", at.round_index)
        return np.sort(rng.choice(num_selected, wanted, replace=False, shuffle=False))

    @cached_property
    def num_rounds(self) -> int:
        """Edge rounds of the whole run."""
        return self.scenario.rounds.global_rounds * self._rounds_per_global_round

    @property
    def most_devices(self) -> int:
        """Number of different devices that can take part in the whole run."""
        selection, everyone = self.method.selection, self.network.num_devices
        if not selection.overrides(Selection.most) or self.method.association.when != "run":
            return everyone
        counts = np.bincount(self.stations.serving({}), minlength=self.network.num_edges)
        selected = sum(selection.most(count) for count in counts.tolist() if count)
        return min(everyone, self.num_rounds * selected)

    @cached_property
    def _rounds_per_global_round(self) -> int:
        return int(np.prod([self.tree.max_rounds(level) for level in range(self.tree.depth)]))

    @cached_property
    def data_sizes(self) -> Array:
        """D_n, the number of training samples of each device.  [num_devices]"""
        return self.samples.sizes

    @cached_property
    def mean_samples_seen(self) -> float:
        """Sample passes of an edge round, over all devices."""
        return float(np.mean(self.scenario.train.samples_seen(self.data_sizes)))

    def station_samples(self, state: RunState) -> Array:
        """Number of samples that each edge stands for: of the devices it serves, or has heard from.  [num_edges]"""
        if HEARD in state.values:
            return state.values[HEARD]
        return np.bincount(self.stations.serving(state.values), self.data_sizes, minlength=self.network.num_edges)

    @cached_property
    def positions_m(self) -> Positions | None:
        """Positions of devices, for device-to-device links; None if the network has none."""
        places = self.network.device_position_m
        return None if self.network.has_measured_links else lambda device: places[device]

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

    @property
    def counts_links(self) -> bool:
        """True if the bits above the edges are recorded as they are charged: with a charged downlink, in a tree."""
        has_links = self.network.topology != "flat" and not self.method.topology.overrides(Topology.root)
        return self.radio.charges_downlink and has_links

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
        )

    def served(self, at: Place, state: RunState) -> Served:
        """Returns the association of this round; decides anew where it changes, and keeps that in `state`."""
        served, state.values = self.stations.served(state.values, at.round_index, starts=at.starts_global_round)
        return served

    def candidates(self, at: Place, state: RunState, served: Served) -> tuple[Candidates, Array]:
        """Returns (the devices of the round's edges as known before planning, their CPU clocks)."""
        parts = (self.method.selection, self.method.weighting, self.method.scheme)
        memory = {slot.name: state.values[slot.name] for part in parts for slot in part.slots(self.shape)}
        candidates = self.stations.candidates(served, at.edges, at.round_index, memory, state.values)
        return candidates, self.network.cpu_hz[candidates.device]

    @cached_property
    def own_tests(self) -> tuple[Array, ...]:
        """Test samples of each device, where devices have models of their own: sampled once, classes as in its data.

        With the partition natural, owners as in its data. Together about as many as the test set has, but never few.
        [num_devices] arrays
        """
        data, num_devices = self.dataset, self.network.num_devices
        count = max(_OWN_TEST, len(data.test_y) // num_devices)
        streams = (rng_for(self.scenario.seed, "own-test", device) for device in range(num_devices))
        train, test = classes_of(data.train_y, data), classes_of(data.test_y, data)
        if self.scenario.data.partition == "natural" and data.train_owner is not None and data.test_owner is not None:
            train, test = data.train_owner, data.test_owner
        classes = (train[samples] for samples in self.samples)
        return tuple(samples_like(own, test, count, rng) for own, rng in zip(classes, streams, strict=True))

    @cached_property
    def held_out(self) -> tuple[Array, ...]:
        """Own test samples of each device: those of its owners if they have any, else samples like its data.

        [num_devices] arrays
        """
        if isinstance(self.samples, Claimed):
            rule = "must be false in a deployment, where the samples of devices are not known to the cloud"
            raise InvalidValue("Scenario.evaluation.devices", rule, True)
        own = held_out_by_device(self.scenario, self.dataset, self.samples)
        return self.own_tests if own is None else own

    def job(self, dataset: Any) -> Job:
        """Returns the workers' setup; `dataset` says where to find the samples."""
        return Job(
            model=self.source,
            dataset=dataset,
            samples=self.samples,
            settings=LocalSettings.of(self.scenario, self.kernel, self.device, self.training),
            criteria=cloudpickle.dumps(self.criteria),
            method=self.method.local,
            wire=self.wire,
            seed=self.scenario.seed,
            drop_failing=self.scenario.engine.on_device_failure == "drop-device",
            folder=getattr(dataset, "folder", None),
            setup_payload=setup_payload(),
            attack=self.attack,
        )


def _sees_rounds(component: Component) -> bool:
    return component.overrides(Component.after_edge_round) or component.overrides(Component.after_global_round)


def _device(scenario: Scenario, used: str | None) -> tuple[str | None, str]:
    """Returns (kernel, device) as a run used them before; else what `train.device` means on this machine."""
    wanted: str = scenario.train.device
    earlier: str | None = None
    if used is not None:
        used, _, earlier = used.partition(":")
    if wanted == "auto" and earlier is not None:
        wanted = earlier or "cpu"
    return used, device_named(wanted, float64=scenario.model.float64)
