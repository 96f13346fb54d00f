"""A scenario's network for plans alone: without its data set, without weights, without torch.

`first_round` plans it as it plans an `Experiment` of the same scenario.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airprune.components.component import ModelShape
from airprune.errors import InvalidValue
from airprune.models.without_torch import chain_of
from airprune.rounds.checks import check_method
from airprune.rounds.method import Method
from airprune.rounds.planning_setup import PlanningSetup
from airprune.scenario import Scenario
from airprune.scenario.data import entry_of
from airprune.wireless.device_speed.work import ModelWork
from airprune.wireless.network import Network

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedNetwork(PlanningSetup):
    """A network whose rounds are planned and not run, on the paper's clock, which does not count samples.

    Attributes:
      model_shape: of the model alone.
    """

    model_shape: ModelShape

    @classmethod
    def of(cls, scenario: Scenario, *, network: Network | None = None) -> PlannedNetwork:
        """Builds it from a scenario; `network` replaces the scenario's own."""
        if scenario.clock.compute != "paper":
            rule = "must be paper for a plan without samples: other clocks count those of each device"
            raise InvalidValue("Scenario.clock.compute", rule, scenario.clock.compute, "Use `airprune plan SCENARIO`")
        scenario.check_names()
        entry, model = entry_of(scenario), scenario.model
        chain = chain_of(model.name, input_shape=entry.feature_shape, num_classes=entry.num_classes)
        if chain is None:
            rule = "must be a model of the catalogue for a plan without torch"
            raise InvalidValue("Scenario.model.name", rule, model.name, "Use `airprune plan SCENARIO`")
        shape = chain.shape(prunable=model.prunable, personal=model.personal)
        network, method = network or scenario.build_network(), Method.of(scenario)
        check_method(scenario, method, shape=shape, num_devices=network.num_devices)
        return cls(scenario=scenario, network=network, radio=scenario.build_radio(), method=method, model_shape=shape)

    @cached_property
    def shape(self) -> ModelShape:
        return self.model_shape.on(
            num_devices=self.network.num_devices,
            num_edges=self.network.num_edges,
            num_antennas=self.radio.num_antennas,
        )

    @cached_property
    def data_sizes(self) -> Array:
        """Equal sizes: no samples are assigned.  [num_devices]"""
        return np.ones(self.network.num_devices, dtype=np.int64)

    @property
    def work(self) -> ModelWork:
        rule = "must be paper for a plan without samples"
        raise InvalidValue("Scenario.clock.compute", rule, self.scenario.clock.compute)

    @property
    def start_weights(self) -> Array:
        """None: no weight is trained."""
        return np.empty(0)
