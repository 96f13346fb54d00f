"""A scenario made concrete: network, radio, the partition of samples, the starting model, the method."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cloudpickle
import numpy as np

from airprune.components.component import Component, ModelShape
from airprune.data import Dataset, Holdings
from airprune.data.holdings import Claimed
from airprune.errors import InvalidValue
from airprune.methods.registration import setup_payload
from airprune.methods.selection.base import Selection
from airprune.methods.topology import Topology
from airprune.models.input_dictionary import taking
from airprune.models.kernels import kernel_for
from airprune.models.kernels.devices import device_named
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY
from airprune.models.losses.own import Criteria, criteria_of, named
from airprune.models.names import HIDDEN
from airprune.models.scores import giving_scores
from airprune.models.start_weights import load_start
from airprune.randomness import rng_for
from airprune.rounds.attacks import Attack, flip_labels
from airprune.rounds.checks import check_method, check_model, check_training
from airprune.rounds.local import LocalSettings
from airprune.rounds.method import Method
from airprune.rounds.model_source import ModelSource, PlainSource, source_of
from airprune.rounds.own_training import Training, named_training
from airprune.rounds.parts import HEARD, Hooks
from airprune.rounds.planning_setup import PlanningSetup
from airprune.rounds.relayed import Positions
from airprune.rounds.sending import samples_like
from airprune.rounds.state import Place, RunState
from airprune.rounds.timing import TimedRound
from airprune.rounds.training.worker import Job
from airprune.scenario import Scenario
from airprune.scenario.data import classes_of, dataset_of, held_out_by_device, samples_by_device
from airprune.wireless.device_speed.work import ModelWork

Array = np.ndarray

# Fewest test samples of a device that has a model of its own.
_OWN_TEST = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment(PlanningSetup):
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

    dataset: Dataset
    model: LocalModel
    source: ModelSource
    samples: Holdings
    kernel: str
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
    def start_weights(self) -> Array:
        return self.model.state_array

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
    def shape(self) -> ModelShape:
        """Shape of the model and the network, as components see it."""
        return self.model.shape.on(
            num_devices=self.network.num_devices,
            num_edges=self.network.num_edges,
            num_antennas=self.radio.num_antennas,
        )

    @cached_property
    def work(self) -> ModelWork:
        """The model's FLOPs per sample."""
        from airprune.wireless.device_speed.flops import count_work  # by torch

        names = [layer.name for layer in self.model.layers]
        return count_work(self.source.module(), self.dataset.train_x[0], names)

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

    def has_ended(self, state: RunState) -> bool:
        """True if no round is left: all have been run, the run was stopped, or training has diverged.

        A diverged run closes its global round first.
        """
        is_closed = not any(state.counters)
        is_over = state.global_round >= self.scenario.rounds.global_rounds or bool(state.stopped)
        return is_over or (bool(state.diverged) and is_closed)

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

    @property
    def counts_links(self) -> bool:
        """True if the bits above the edges are recorded as they are charged: with a charged downlink, in a tree."""
        has_links = self.network.topology != "flat" and not self.method.topology.overrides(Topology.root)
        return self.radio.charges_downlink and has_links

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
