"""What is refused before a run begins: methods whose parts do not go together, models that their samples do not fit."""

from __future__ import annotations

import numpy as np

from airprune.compression.base import Wire
from airprune.data import Dataset
from airprune.errors import InvalidValue
from airprune.federation.method import Method
from airprune.losses.own import Judged
from airprune.model_sources import ModelSource
from airprune.scenario import Scenario

Array = np.ndarray


def check_method(scenario: Scenario, method: Method) -> None:
    _check_deadline(scenario, method)
    _check_relay(scenario, method)
    _check_steps(scenario, method)


def check_model(source: ModelSource, data: Dataset, judged_by: Judged, num_samples: Array, scenario: Scenario) -> None:
    """A misfit of model, samples and loss is a sentence before the first round."""
    from airprune.fitting import check_fit  # by torch

    module = source.module().double() if scenario.model.float64 else source.module().float()
    check_fit(module, data, judged_by, num_samples, batch_size=scenario.train.batch_size)


def _check_deadline(scenario: Scenario, method: Method) -> None:
    """Only where codes are chosen can a deadline be: nothing else tells what a shorter one costs."""
    if scenario.plan.deadline_s == "auto" and not (
        method.scheme.component.chooses_codes and method.compression.has("ladder")
    ):
        got = f"scheme {method.scheme.name!r} with compression {method.compression.name!r}"
        rule = 'can be "auto" only with a scheme and a compression that choose codes'
        raise InvalidValue("Scenario.plan.deadline_s", rule, got, 'Example: method = "adaptive"')


def _check_relay(scenario: Scenario, method: Method) -> None:
    """Devices add up each other's updates, which codes do not allow, unless all that goes on is a vote."""
    if method.edge.component.by_group and method.topology.component.masters:
        return
    # Of so many weights that a code which leaves some out does.
    wire = Wire(value_bits=scenario.plan.bits_per_weight, num_weights=1_000_000, num_tensors=1)
    if method.topology.has("relay") and not method.compression("exact", wire):
        rule = f"must leave values as they are with topology {method.topology.name!r}, whose devices add them up"
        way_out = 'Example: compression.name = "cast"'
        raise InvalidValue("Scenario.compression.name", rule, repr(method.compression.name), way_out)


def _check_steps(scenario: Scenario, method: Method) -> None:
    """Some objectives read a device's mean gradient off the way it went, which only plain steps allow."""
    train = scenario.train
    if method.objective.component.plain_steps and (train.momentum or train.optimizer != "sgd"):
        got = f"{train.momentum:g} with optimizer {train.optimizer!r}"
        rule = f"must be 0, with optimizer 'sgd', for objective {method.objective.name!r}"
        raise InvalidValue("Scenario.train.momentum", rule, got, "Example: train.momentum = 0")
