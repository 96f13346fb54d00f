"""A scenario made concrete: the network, the radio, who has which samples, and the model they start from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cloudpickle
import numpy as np

from airprune.channel import Radio, full_band_rate_bps, large_scale_gain, small_scale_gain, snr
from airprune.data import Dataset, as_dataset, load_dataset, partition, standardized
from airprune.errors import InvalidValue
from airprune.federation.work import Job
from airprune.learning.native import kernel_for
from airprune.learning.trainer import LocalSettings
from airprune.models import FlatModel, build_model
from airprune.network import Network
from airprune.pruning.importance import importance_named
from airprune.scenario import Scenario

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """All that a run needs and that never changes during it.

    Attributes:
      model: the starting model; its weight counts feed the planner.
      samples: indices of each device's training samples.  [num_devices] arrays
      kernel: what computes gradients here, "native" or "torch".
    """

    scenario: Scenario
    network: Network
    radio: Radio
    dataset: Dataset
    model: FlatModel
    module: bytes
    samples: tuple[Array, ...]
    kernel: str

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
        pickled = cloudpickle.dumps(module)
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
        )

    @cached_property
    def max_pruning_ratio(self) -> float:
        """The scenario's cap, lowered if need be so that each unit of the prunable layers keeps a weight.

        Without that, a plan could remove the classifier of a small model.
        """
        settings = self.scenario.plan
        limit = 1.0 - self.model.layers.num_rows / self.model.fc_weights
        if settings.min_pruning_ratio > limit:
            raise InvalidValue(
                "Scenario.plan.min_pruning_ratio",
                f"must be ≤ {limit:.4f} so that each of the model's {self.model.layers.num_rows} units keeps a weight",
                settings.min_pruning_ratio,
            )
        return min(settings.max_pruning_ratio, limit)

    @cached_property
    def data_sizes(self) -> Array:
        """D_n, the number of training samples of each device.  [num_devices]"""
        return np.array([len(indices) for indices in self.samples])

    @cached_property
    def _large_scale_gain(self) -> Array:
        return large_scale_gain(self.network, self.radio, seed=self.scenario.seed)

    def full_band_rates(self, round_index: int) -> Array:
        """r_n during one edge round, Eq. (10) at b = 1; fading is drawn anew for each.  [num_devices]"""
        fading = small_scale_gain(
            self.network.num_devices, self.radio, seed=self.scenario.seed, round_index=round_index
        )
        return full_band_rate_bps(snr(self._large_scale_gain * fading, self.radio), self.radio.bandwidth_hz)

    def job(self, dataset: Any) -> Job:
        """What workers need; `dataset` tells them where to find the samples."""
        train, pruning = self.scenario.train, self.scenario.pruning
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
                importance=importance_named(pruning.importance),
                scope=pruning.scope,
                structure=pruning.structure,
                diagnostics=self.scenario.diagnostics.gradients,
                kernel=self.kernel,
            ),
            seed=self.scenario.seed,
            drop_failing=self.scenario.engine.on_device_failure == "drop-device",
            folder=getattr(dataset, "folder", None),
        )


def _dataset(scenario: Scenario, given: Any) -> Dataset:
    data = scenario.data
    if given is not None:
        return as_dataset(given, seed=scenario.seed)
    dataset = load_dataset(
        data.name,
        data_dir=data.data_dir,
        train_samples=data.train_samples,
        test_samples=data.test_samples,
        seed=scenario.seed,
    )
    return standardized(dataset) if data.standardize else dataset
