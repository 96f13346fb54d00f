"""A scenario made concrete: the network, the radio, who has which samples, the model they start from, the method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import cloudpickle
import numpy as np

from airprune.components.component import ModelShape, Owner, Slot
from airprune.data import Dataset, Holdings
from airprune.errors import InvalidValue
from airprune.methods.compression.base import Wire
from airprune.methods.masking import Masking
from airprune.methods.registration import luggage
from airprune.methods.selection.base import Candidates, Selection
from airprune.methods.topology import Topology, Tree
from airprune.methods.topology.root import RootRound, RootView
from airprune.models.kernels import kernel_for
from airprune.models.kernels.devices import device_named
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY
from airprune.models.losses.own import Judged, judged, named
from airprune.models.names import HIDDEN
from airprune.planning.deadline import FIRST_KAPPA, measured_kappa
from airprune.planning.periods import local_steps_at
from airprune.randomness import rng_for
from airprune.rounds.backhaul import Backhaul
from airprune.rounds.cloud import combine_level, combined_up_to
from airprune.rounds.compute_times import ComputeTimes, compute_times
from airprune.rounds.device import LocalSettings
from airprune.rounds.messages import Orders
from airprune.rounds.method import Method
from airprune.rounds.model_source import ModelSource, PlainSource, source_of
from airprune.rounds.personal import samples_like
from airprune.rounds.relayed import Positions
from airprune.rounds.terms import Terms
from airprune.rounds.training.optimisers import learning_rate_at
from airprune.rounds.training.worker import TEST_PART, HeldTest, Job
from airprune.scenario import Scenario
from airprune.scenario.data import classes_of, dataset_of, samples_by_device
from airprune.simulation.checks import check_method, check_model
from airprune.simulation.clock import TimedRound
from airprune.simulation.state import RunState
from airprune.simulation.stations import Stations
from airprune.wireless.channel import Radio, full_band_rates
from airprune.wireless.device_speed.work import ModelWork
from airprune.wireless.network import Network

Array = np.ndarray

# Reserved names among a run's values: whose data the edges heard from since the last global round, if the cloud weighs
# them by it,
_HEARD = "heard/samples"
# … what deadlines that tune themselves have learnt,
_KAPPA = "deadline/kappa"
# … the training loss of the first global round and of the last one, if local steps decay with it,
_LOSSES = "steps/losses"
# … and what each edge has received in this global round, for topologies with a round of their own at the root.
_RECEIVED_BITS = "root/received-bits"

# … and the device whose sub-model is judged, what it may keep, the place of its randomness, and what it was told.
_MEDIAN, _TOLD = "judged/device", "judged/told"

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
      judged_by: the loss that is minimised, and what models are judged by.
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
    judged_by: Judged
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
        kernel: str | None = None,
    ) -> Experiment:
        """From a scenario; `model` (a torch module), `dataset`, `loss` and `metric` replace its own, see `run`.

        Where the scenario leaves kernel and device open, they are `kernel`: those of the run to be continued, if there
        is one, as `used` has them.
        """
        scenario = named(scenario, loss, metric)
        scenario.check_names()
        judged_by = judged(scenario, loss, metric)
        kernel, device = _device(scenario, kernel)
        network = scenario.build_network()
        data = dataset_of(scenario, dataset, targets=judged_by.loss.targets)
        wanted = (kernel or "auto") if scenario.train.kernel == "auto" else scenario.train.kernel
        source = source_of(
            scenario,
            data.train_x,
            data.train_y,
            num_outputs=data.num_outputs,
            kernel=wanted,
            by_accuracy=judged_by.is_accuracy,
            module=model,
        )
        flat = source.open()
        samples = samples_by_device(scenario, data, network)
        method = Method.of(scenario)
        check_method(scenario, method, shape=flat.shape, num_devices=network.num_devices)
        is_own = model is not None or dataset is not None or scenario.model.name not in HIDDEN
        if not isinstance(source, PlainSource) and (is_own or scenario.train.loss != CROSS_ENTROPY):
            check_model(source, data, judged_by, samples.sizes, scenario)
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
            ),
            method=method,
            judged_by=judged_by,
            device=device,
        )

    @property
    def used(self) -> str:
        """The kernel, and what it computes on unless that is the CPU: `torch:cuda`."""
        return self.kernel if self.device == "cpu" else f"{self.kernel}:{self.device}"

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
        """What components know of the model and the network."""
        return self.model.shape.on(num_devices=self.network.num_devices, num_edges=self.network.num_edges)

    @cached_property
    def wire(self) -> Wire:
        """What the encoder of a device knows."""
        return Wire.of(self.shape, value_bits=self.scenario.plan.bits_per_weight)

    @cached_property
    def work(self) -> ModelWork:
        """The model's FLOPs per sample."""
        from airprune.wireless.device_speed.flops import count_work  # by torch

        names = [layer.name for layer in self.model.layers]
        return count_work(self.source.module(), self.dataset.train_x[0], names)

    @cached_property
    def compute(self) -> ComputeTimes:
        """How long every device computes."""
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
    def terms(self) -> Terms:
        return Terms(
            plan=self.scenario.plan,
            radio=self.radio,
            method=self.method,
            shape=self.shape,
            wire=self.wire,
            compute=self.compute,
            max_pruning_ratio=self.max_pruning_ratio,
            min_pruning_ratio=self.scenario.plan.min_pruning_ratio,
            float64=self.scenario.model.float64,
        )

    def terms_at(self, state: RunState) -> Terms:
        """As they are in this global round: with the compute times of as many local steps as it has."""
        steps = self.local_steps(state)
        if steps is None:
            return self.terms
        train, sizes = self.scenario.train, self.data_sizes
        if self.scenario.clock.compute == "paper":
            share = steps / np.maximum(train.steps(sizes), 1.0)
        else:
            share = train.samples_seen(sizes, steps) / np.maximum(train.samples_seen(sizes), 1.0)
        return replace(self.terms, compute=replace(self.compute, passes=self.compute.passes * share))

    def local_steps(self, state: RunState) -> Array | None:
        """τ_n(t) of every device in this global round; None where it is τ_n(0).  [num_devices]"""
        if _LOSSES not in state.values or not state.values[_LOSSES][0]:
            return None
        first, last = state.values[_LOSSES].tolist()
        rate_ratio = self.scenario.train.learning_rate / self.learning_rate(state)
        whole = self.scenario.train.steps(self.data_sizes).astype(np.int64)
        found = [local_steps_at(n, loss_ratio=last / first, rate_ratio=rate_ratio) for n in whole.tolist()]
        return np.minimum(found, whole)

    def learn_loss(self, state: RunState, train_loss: float | None) -> None:
        """Keeps in mind the loss of a global round, for the local steps of the next."""
        if _LOSSES in state.values and train_loss is not None and np.isfinite(train_loss) and train_loss > 0.0:
            first = state.values[_LOSSES][0] or train_loss
            state.values[_LOSSES] = np.array([first, train_loss])

    @cached_property
    def tree(self) -> Tree:
        return self.method.topology.build(np.array(self.scenario.edge_rounds_on(self.network)))

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return self.method.slots(self.shape)

    def slot_names(self, owner: Owner) -> list[str]:
        return [slot.name for slot in self.slots if slot.owner == owner]

    def initial_state(self) -> RunState:
        """Before the first round."""
        state = RunState.initial(
            self.model.state_array.copy(),
            self.tree,
            self.slots,
            self.shape,
            tracks_held=self.method.cloud_step.name != "replace",
        )
        state.values |= self.stations.initial_values
        if self.method.cloud.counts == "heard":
            state.values[_HEARD] = np.zeros(self.network.num_edges)
        if self.scenario.plan.deadline_s == "auto":
            state.values[_KAPPA] = np.array([FIRST_KAPPA])
        if self.scenario.train.steps_decay == "loss":
            state.values[_LOSSES] = np.zeros(2)
        if self.method.topology.overrides(Topology.root):
            state.values[_RECEIVED_BITS] = np.zeros(self.network.num_edges)
        if self.scenario.diagnostics.sub_models:
            state.values |= {_MEDIAN: np.array([], dtype=np.int64), _TOLD: np.array([])}
        return state

    def note_median(self, state: RunState, timed: TimedRound) -> None:
        """Keeps in mind who of the round's devices had the median sub-model, if it is to be judged."""
        here = np.flatnonzero(timed.takes_part)
        if _MEDIAN not in state.values or not len(here):
            return
        opened = timed.opened
        median = here[np.argsort(opened.keep[here], kind="stable")[(len(here) - 1) // 2]]
        place = (state.global_round, self.step_index(state), self.round_index(state))
        state.values[_MEDIAN] = np.array([opened.device[median], opened.keep[median], *place])
        state.values[_TOLD] = np.array([]) if opened.mask is None else opened.mask

    def held_tests(self, state: RunState) -> list[HeldTest]:
        """Parts of the test of what the median device of the last edge round holds; none if there was none."""
        if not len(state.values.get(_MEDIAN, ())):
            return []
        device, keep, global_round, step, round_index = state.values[_MEDIAN].tolist()
        told = state.values[_TOLD]
        memory = {} if state.store is None else {n: rows[0] for n, rows in state.store.take([device]).items()}
        orders = Orders(
            device=device,
            keep=keep,
            learning_rate=self.learning_rate(state),
            round_index=round_index,
            memory=memory,
        )
        return [
            HeldTest(orders=orders, told=told if len(told) else None, place=(global_round, step), start=start)
            for start in range(0, len(self.dataset.test_y), TEST_PART)
        ]

    def kappa(self, state: RunState) -> float:
        """How much fewer bits slow learning down, as learnt so far."""
        return float(state.values[_KAPPA][0]) if _KAPPA in state.values else FIRST_KAPPA

    def learn_kappa(self, state: RunState, bits_per_weight: Array, error: Array) -> None:
        """Half of what the round showed, half of what was known; `error` is what each device's code lost."""
        if _KAPPA in state.values and len(error):
            shown = self.scenario.plan.error_cost * measured_kappa(bits_per_weight, error)
            state.values[_KAPPA] = 0.5 * (state.values[_KAPPA] + shown)

    def learning_rate(self, state: RunState) -> float:
        """η of this global round."""
        train = self.scenario.train
        return learning_rate_at(
            state.global_round,
            base=train.learning_rate,
            schedule=train.schedule,
            global_rounds=self.scenario.rounds.global_rounds,
            step_every=train.step_every,
            step_factor=train.step_factor,
        )

    def combined(self, state: RunState, level: int, out: Array | None = None) -> Array:
        """The combined models of all parents of a level's nodes, as links brought them.  [num_parents, num_state]

        Args:
          out: edges that do not count.  [num_edges] bool
        """
        return combine_level(
            self.method.cloud.at_rate(self.learning_rate(state)),
            self.tree,
            state.models,
            level,
            self.station_samples(state),
            self.backhaul,
            self.round_index(state),
            out if level == self.tree.depth - 1 else None,
        )

    def combined_now(self, state: RunState, top: int = -1) -> Array:
        """What the nodes of a level would have if every level below combined now; −1 is the root.

        Changes nothing.  [num_nodes, num_state]
        """
        return combined_up_to(
            top,
            self.method.cloud.at_rate(self.learning_rate(state)),
            self.tree,
            state.models,
            self.station_samples(state),
            self.backhaul,
            self.round_index(state),
        )

    def judged(self, state: RunState, *, now: bool = False) -> Array:
        """The models whose mean prediction is judged, without what the method leaves out.  [num_models, num_state]

        One, the cloud's, unless models stay apart. `now` gives them as if every level below combined at once.
        """
        top, masking = self.method.topology.top, self.method.masking
        models = self.combined_now(state, top) if now else state.models[self.tree.nodes(top)]
        if not masking.overrides(Masking.evaluated):
            return models
        return np.stack([masking.evaluated(self.shape, model, state.values) for model in models])

    def has_ended(self, state: RunState) -> bool:
        """Whether no round is left: all have been run, or training has diverged and its global round is closed."""
        is_closed = not any(state.counters)
        return state.global_round >= self.scenario.rounds.global_rounds or (bool(state.diverged) and is_closed)

    def step_index(self, state: RunState) -> int:
        """Edge rounds since the start of the global round."""
        index = 0
        for level, count in enumerate(state.counters):
            index = index * self.tree.max_rounds(level) + count
        return index

    def round_index(self, state: RunState) -> int:
        """Edge rounds since the start of the run."""
        return state.global_round * self._rounds_per_global_round + self.step_index(state)

    def recorded(self, state: RunState, num_asked: int) -> Array | None:
        """Places among those asked of the devices that the round's record tells of, ascending; None: all.

        Drawn anew in every round, apart from whom the selection asks.
        """
        wanted = self.scenario.records.devices
        if wanted == "all" or num_asked <= wanted:
            return None
        rng = rng_for(self.scenario.seed, "records", self.round_index(state))
        return np.sort(rng.choice(num_asked, wanted, replace=False, shuffle=False))

    @property
    def num_rounds(self) -> int:
        """Edge rounds of the whole run."""
        return self.scenario.rounds.global_rounds * self._rounds_per_global_round

    @property
    def most_devices(self) -> int:
        """How many different devices can take part in the whole run."""
        selection, everyone = self.method.selection, self.network.num_devices
        if not selection.overrides(Selection.most) or self.method.association.when != "run":
            return everyone
        counts = np.bincount(self.stations.serving({}), minlength=self.network.num_edges)
        asked = sum(selection.most(count) for count in counts.tolist() if count)
        return min(everyone, self.num_rounds * asked)

    @cached_property
    def _rounds_per_global_round(self) -> int:
        return int(np.prod([self.tree.max_rounds(level) for level in range(self.tree.depth)]))

    @property
    def data_sizes(self) -> Array:
        """D_n, the number of training samples of each device.  [num_devices]"""
        return self.samples.sizes

    @cached_property
    def mean_samples_seen(self) -> float:
        """Sample passes of an edge round, over all devices."""
        return float(np.mean(self.scenario.train.samples_seen(self.data_sizes)))

    def station_samples(self, state: RunState) -> Array:
        """Samples that each edge stands for: of the devices it serves, or has heard from.  [num_edges]"""
        if _HEARD in state.values:
            return state.values[_HEARD]
        return np.bincount(self.stations.serving(state.values), self.data_sizes, minlength=self.network.num_edges)

    def note_heard(self, state: RunState, edges: Array, device: Array) -> None:
        """Counts the samples of these devices, whose uploads the edges have averaged."""
        if _HEARD in state.values:
            before = state.values[_HEARD] if any(state.counters) else 0.0
            state.values[_HEARD] = before + np.bincount(
                edges, self.data_sizes[device], minlength=self.network.num_edges
            )

    @property
    def positions_m(self) -> Positions | None:
        """Where devices stand, for those that talk to each other; None if the network knows it of none."""
        places = self.network.device_position_m
        return None if self.network.has_measured_links else lambda device: places[device]

    def count_received(self, state: RunState, edge: Array, bits: Array) -> None:
        """Adds what devices have sent to their edges, if the round at the root asks for it."""
        if _RECEIVED_BITS in state.values:
            state.values[_RECEIVED_BITS] += np.bincount(edge, bits, minlength=self.network.num_edges)

    def root_round(self, state: RunState) -> RootRound | None:
        """What the topology's own round at the root takes, if it has one; what edges have received starts from 0."""
        if _RECEIVED_BITS not in state.values:
            return None
        view = RootView(
            network=self.network,
            radio=self.radio,
            edge=self.stations.serving(state.values),
            received_bits=state.values[_RECEIVED_BITS],
            model_bits=self.backhaul.bits,
            num_weights=self.shape.num_weights,
            cloud_rate_bps=lambda: full_band_rates(
                self.network.flat(), self.radio, seed=self.scenario.seed, round_index=self.round_index(state)
            ),
        )
        found = self.method.topology.root(view)
        state.values[_RECEIVED_BITS] = np.zeros(self.network.num_edges)
        return found

    @cached_property
    def backhaul(self) -> Backhaul:
        """What models travel through above the edges."""
        return Backhaul(
            compression=self.method.backhaul,
            wire=self.wire,
            shape=self.shape,
            seed=self.scenario.seed,
            extra_bits=self.terms.objective_bits,
        )

    @cached_property
    def stations(self) -> Stations:
        """Who serves whom, over which channel."""
        return Stations(
            network=self.network,
            radio=self.radio,
            terms=self.terms,
            level=self.tree.levels[-1],
            model_bits=self.backhaul.bits,
            data_sizes=self.data_sizes,
            seed=self.scenario.seed,
        )

    def candidates(self, state: RunState, edges: Array) -> tuple[Candidates, Array | None]:
        """(the devices of these edges as known before planning, who of the network loses this round's upload)."""
        round_index = self.round_index(state)
        served, state.values = self.stations.served(state.values, round_index, starts=not any(state.counters))
        memory = {slot.name: state.values[slot.name] for slot in self.method.selection.slots(self.shape)}
        return self.stations.candidates(served, edges, round_index, memory), served.interrupted

    @cached_property
    def own_tests(self) -> tuple[Array, ...]:
        """The test samples of each device, where devices have models of their own: drawn once, classes as in its data.

        Together about as many as the test set has, but never few.  [num_devices] arrays
        """
        data, num_devices = self.dataset, self.network.num_devices
        count = max(_OWN_TEST, len(data.test_y) // num_devices)
        streams = (rng_for(self.scenario.seed, "own-test", device) for device in range(num_devices))
        train, test = classes_of(data.train_y, data), classes_of(data.test_y, data)
        classes = (train[samples] for samples in self.samples)
        return tuple(samples_like(own, test, count, rng) for own, rng in zip(classes, streams, strict=True))

    def job(self, dataset: Any) -> Job:
        """What workers need; `dataset` tells them where to find the samples."""
        return Job(
            model=self.source,
            dataset=dataset,
            samples=self.samples,
            settings=LocalSettings.of(self.scenario, self.kernel, self.device),
            judged=cloudpickle.dumps(self.judged_by),
            method=self.method.local,
            wire=self.wire,
            seed=self.scenario.seed,
            drop_failing=self.scenario.engine.on_device_failure == "drop-device",
            folder=getattr(dataset, "folder", None),
            luggage=luggage(),
        )


def _device(scenario: Scenario, used: str | None) -> tuple[str | None, str]:
    """(kernel, device) where a run used these before; what `train.device` means here where it did not."""
    wanted: str = scenario.train.device
    earlier: str | None = None
    if used is not None:
        used, _, earlier = used.partition(":")
    if wanted == "auto" and earlier is not None:
        wanted = earlier or "cpu"
    return used, device_named(wanted, float64=scenario.model.float64)
