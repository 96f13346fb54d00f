"""A scenario made concrete: the network, the radio, who has which samples, the model they start from, the method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cloudpickle
import numpy as np

from airprune.association.base import AssociationView, Served
from airprune.channel import (
    Radio,
    full_band_rate_bps,
    gains_to_stations,
    large_scale_gain,
    small_scale_gain,
    snr,
)
from airprune.components import ModelShape, Owner, Slot
from airprune.compression.base import Wire
from airprune.compute.flops import count_work
from airprune.compute.times import ComputeTimes, compute_times
from airprune.compute.work import ModelWork
from airprune.data import Dataset, as_dataset, load_dataset, partition, standardized
from airprune.errors import InvalidValue
from airprune.federation.device import LocalSettings
from airprune.federation.edge import Terms
from airprune.federation.method import Method
from airprune.kernels import kernel_for
from airprune.learning.worker import Job
from airprune.models import FlatModel, build_model
from airprune.network import Network
from airprune.own_models import pickled_module
from airprune.planning.deadline import FIRST_KAPPA, measured_kappa
from airprune.randomness import rng_for
from airprune.registration import luggage
from airprune.scenario import Scenario
from airprune.selection.base import Candidates
from airprune.simulation.state import RunState
from airprune.topology import Tree

Array = np.ndarray

# Reserved names among a run's values: who serves whom, where that changes.
_SERVED_EDGE, _SERVED_GAIN = "served/edge", "served/gain"
# … and what deadlines that tune themselves have learnt.
_KAPPA = "deadline/kappa"


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """All that a run needs and that never changes during it.

    Attributes:
      model: the starting model; its weight counts feed the planner.
      samples: indices of each device's training samples.  [num_devices] arrays
      kernel: what computes gradients here: a name of KERNELS.
    """

    scenario: Scenario
    network: Network
    radio: Radio
    dataset: Dataset
    model: FlatModel
    module: bytes
    samples: tuple[Array, ...]
    kernel: str
    method: Method

    @classmethod
    def of(cls, scenario: Scenario, *, model: Any = None, dataset: Any = None, kernel: str | None = None) -> Experiment:
        """From a scenario; `model` (a torch module) and `dataset` (arrays or torch data) replace its own.

        Where the scenario leaves the kernel open, it is `kernel`: that of the run to be continued, if there is one.
        """
        scenario.check_names()
        network = scenario.build_network()
        data = _dataset(scenario, dataset)
        module = model
        if module is None:
            shape = data.train_x.shape[1:]
            module = build_model(
                scenario.model.name, input_shape=shape, num_classes=data.num_classes, seed=scenario.seed
            )
        pickled = pickled_module(module)
        settings = scenario.model
        flat = FlatModel(cloudpickle.loads(pickled), prunable=settings.prunable, float64=settings.float64)
        samples = partition(
            data.train_y,
            edge=network.edge,
            kind=scenario.data.partition,
            seed=scenario.seed,
            classes_per_device=scenario.data.classes_per_device,
            alpha=scenario.data.alpha,
            size_spread=scenario.data.size_spread,
        )
        method = Method.of(scenario)
        _check_deadline(scenario, method)
        wanted = (kernel or "auto") if scenario.train.kernel == "auto" else scenario.train.kernel
        return cls(
            scenario=scenario,
            network=network,
            radio=scenario.build_radio(),
            dataset=data,
            model=flat,
            module=pickled,
            samples=tuple(samples),
            kernel=kernel_for(wanted, flat, data.train_x, data.train_y),
            method=method,
        )

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
        num_tensors = sum(tensor.counted for tensor in self.shape.tensors)
        return Wire(
            value_bits=self.scenario.plan.bits_per_weight,
            num_weights=self.shape.num_weights,
            num_tensors=num_tensors,
        )

    @cached_property
    def work(self) -> ModelWork:
        """The model's FLOPs per sample."""
        names = [layer.name for layer in self.model.layers]
        return count_work(cloudpickle.loads(self.module), self.dataset.train_x[0], names)

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
        )

    @cached_property
    def tree(self) -> Tree:
        tree: Tree = self.method.topology("build", np.array(self.scenario.edge_rounds_on(self.network)))
        return tree

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
        if self.method.association.component.when != "run":
            state.values |= {_SERVED_EDGE: self.network.edge.copy(), _SERVED_GAIN: self._own_gain.copy()}
        if self.scenario.plan.deadline_s == "auto":
            state.values[_KAPPA] = np.array([FIRST_KAPPA])
        return state

    def kappa(self, state: RunState) -> float:
        """How much fewer bits slow learning down, as learnt so far."""
        return float(state.values[_KAPPA][0]) if _KAPPA in state.values else FIRST_KAPPA

    def learn_kappa(self, state: RunState, bits_per_weight: Array, error: Array) -> None:
        """Half of what the round showed, half of what was known; `error` is what each device's code lost."""
        if _KAPPA in state.values and len(error):
            shown = self.scenario.plan.error_cost * measured_kappa(bits_per_weight, error)
            state.values[_KAPPA] = 0.5 * (state.values[_KAPPA] + shown)

    def step_index(self, state: RunState) -> int:
        """Edge rounds since the start of the global round."""
        index = 0
        for level, count in enumerate(state.counters):
            index = index * self.tree.max_rounds(level) + count
        return index

    def round_index(self, state: RunState) -> int:
        """Edge rounds since the start of the run."""
        per_global_round = int(np.prod([self.tree.max_rounds(level) for level in range(self.tree.depth)]))
        return state.global_round * per_global_round + self.step_index(state)

    @cached_property
    def data_sizes(self) -> Array:
        """D_n, the number of training samples of each device.  [num_devices]"""
        return np.array([len(indices) for indices in self.samples])

    def station_samples(self, state: RunState) -> Array:
        """Samples of the devices that each edge serves.  [num_edges]"""
        edge = state.values.get(_SERVED_EDGE, self.network.edge)
        return np.bincount(edge, self.data_sizes, minlength=self.network.num_edges)

    @property
    def model_bits(self) -> float:
        """Of a whole model on the links above the edges."""
        return self.scenario.plan.bits_per_weight * self.shape.num_weights

    @cached_property
    def _own_gain(self) -> Array:
        return large_scale_gain(self.network, self.radio, seed=self.scenario.seed)

    @cached_property
    def _gains(self) -> Array:
        return gains_to_stations(self.network, self.radio, seed=self.scenario.seed)

    @cached_property
    def _served_always(self) -> Served:
        served, _ = self._decide({}, 0)
        return served

    def _decide(self, values: dict[str, Array], round_index: int) -> tuple[Served, dict[str, Array]]:
        view = AssociationView(
            network=self.network,
            own_gain=self._own_gain,
            gains=lambda: self._gains,
            round_index=round_index,
            rng=rng_for(self.scenario.seed, "association", round_index),
        )
        decided: tuple[Served, dict[str, Array]] = self.method.association("decide", view, values)
        return decided

    def served(self, state: RunState) -> Served:
        """Who serves whom in the edge round to come; decided, and kept in the state, where that changes."""
        when = self.method.association.component.when
        if when == "run":
            return self._served_always
        if when == "global" and any(state.counters):
            return Served(edge=state.values[_SERVED_EDGE], gain=state.values[_SERVED_GAIN])
        served, state.values = self._decide(state.values, self.round_index(state))
        state.values |= {_SERVED_EDGE: served.edge, _SERVED_GAIN: served.gain}
        return served

    def candidates(self, state: RunState, edges: Array) -> tuple[Candidates, Array | None]:
        """(the devices of these edges as known before planning, who of the network loses this round's upload)."""
        served, round_index = self.served(state), self.round_index(state)
        device = np.flatnonzero(np.isin(served.edge, edges))
        fading = small_scale_gain(
            self.network.num_devices, self.radio, seed=self.scenario.seed, round_index=round_index
        )
        rates = full_band_rate_bps(snr(served.gain * fading, self.radio), self.radio.bandwidth_hz)
        found = Candidates(
            device=device,
            edge=served.edge[device],
            full_band_rate_bps=rates[device],
            num_samples=self.data_sizes[device],
            round_index=round_index,
            rng=rng_for(self.scenario.seed, "selection", round_index),
        )
        return found, served.interrupted

    def job(self, dataset: Any) -> Job:
        """What workers need; `dataset` tells them where to find the samples."""
        train = self.scenario.train
        return Job(
            module=self.module,
            prunable=tuple(self.scenario.model.prunable),
            float64=self.scenario.model.float64,
            dataset=dataset,
            samples=self.samples,
            settings=LocalSettings(
                batch_size=train.batch_size,
                local_epochs=train.local_epochs,
                optimizer=train.optimizer,
                momentum=train.momentum,
                weight_decay=train.weight_decay,
                diagnostics=self.scenario.diagnostics.gradients,
                kernel=self.kernel,
            ),
            method=self.method.local,
            wire=self.wire,
            seed=self.scenario.seed,
            drop_failing=self.scenario.engine.on_device_failure == "drop-device",
            folder=getattr(dataset, "folder", None),
            luggage=luggage(),
        )


def _check_deadline(scenario: Scenario, method: Method) -> None:
    """Only where codes are chosen can a deadline be: nothing else tells what a shorter one costs."""
    if scenario.plan.deadline_s == "auto" and not (
        method.scheme.component.chooses_codes and method.compression.has("ladder")
    ):
        got = f"scheme {method.scheme.name!r} with compression {method.compression.name!r}"
        rule = 'can be "auto" only with a scheme and a compression that choose codes'
        raise InvalidValue("Scenario.plan.deadline_s", rule, got, 'Example: method = "adaptive"')


def _dataset(scenario: Scenario, given: Any) -> Dataset:
    data = scenario.data
    if given is not None:
        if data.judge_on == "held-out":
            rule, way_out = "must be test with a dataset of your own", "Give held-out samples as its test samples"
            raise InvalidValue("Scenario.data.judge_on", rule, data.judge_on, way_out)
        return as_dataset(given, seed=scenario.seed)
    dataset = load_dataset(
        data.name,
        data_dir=data.data_dir,
        train_samples=data.train_samples,
        test_samples=data.test_samples,
        judge_on=data.judge_on,
        seed=scenario.seed,
    )
    return standardized(dataset) if data.standardize else dataset
