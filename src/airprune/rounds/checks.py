"""Checks before a run begins: components that do not go together, models that their samples do not fit."""

from __future__ import annotations

import numpy as np

from airprune.components.component import LocalComponent, ModelShape
from airprune.data import Dataset
from airprune.errors import InvalidValue
from airprune.methods.augmentations import Augmentation
from airprune.methods.compression.base import Compression, Wire
from airprune.methods.loops import Loop
from airprune.methods.objectives import Objective
from airprune.methods.optimisers.base import StepSettings
from airprune.methods.optimisers.sgd import Sgd
from airprune.methods.topology import Topology
from airprune.models.losses.own import Criteria
from airprune.rounds.cohorts import check_sums
from airprune.rounds.method import Method
from airprune.rounds.model_source import ModelSource
from airprune.rounds.over_the_air import check_over_the_air
from airprune.rounds.own_training import Training
from airprune.rounds.rates import WITHIN_ROUNDS
from airprune.rounds.secure import check_secure
from airprune.scenario import Scenario
from airprune.scenario.sections import TrainSection

Array = np.ndarray


def check_method(scenario: Scenario, method: Method, *, shape: ModelShape, num_devices: int) -> None:
    _check_deadline(scenario, method)
    _check_work(scenario, method)
    _check_promise(scenario, method)
    _check_relay(scenario, method)
    _check_steps(scenario, method)
    _check_contributors(scenario, method, num_devices)
    check_sums(scenario, method)
    check_secure(scenario, method)
    check_over_the_air(scenario, method, shape)
    if scenario.stop.watches_metric and scenario.rounds.evaluate_every == "never":
        rule = 'must be "global" or "edge" where stop has a target, patience or keep_best'
        raise InvalidValue("Scenario.rounds.evaluate_every", rule, "never", 'Example: evaluate_every = "global"')
    if scenario.privacy.clip_norm is not None:
        _check_privacy(scenario, method, shape)


def check_training(scenario: Scenario, training: Training, method: Method, x: Array, device: str) -> None:
    """Raises one sentence if the loop, optimiser, schedule or augmentation does not go with the rest."""
    train = scenario.train
    if train.schedule_unit in WITHIN_ROUNDS and train.schedule != "constant":
        reader = f"objective {method.objective.name!r}" if method.objective.plain_steps else ""
        reader = reader or (f"aggregation {method.edge.name!r}" if method.edge.by_work else "")
        if reader:
            rule = f'must be "global" or "edge" with {reader}, which counts all steps of a round equally'
            raise InvalidValue("Scenario.train.schedule_unit", rule, repr(train.schedule_unit))
    if not isinstance(training.optimizer, Sgd):
        _check_optimizer(training, train)
    if training.augmentation is not None:
        _check_augmentation(training.augmentation, method, x)
    if training.loop is not None:
        _check_loop(scenario, training.loop, method, device)


def _check_optimizer(training: Training, train: TrainSection) -> None:
    """Makes the optimiser once, so that wrong arguments are found before the first round."""
    import torch

    settings = StepSettings(learning_rate=train.learning_rate, momentum=train.momentum, weight_decay=train.weight_decay)
    made: object = training.optimizer.torch_optimizer([torch.nn.Parameter(torch.zeros(2, 2))], settings)
    if not isinstance(made, torch.optim.Optimizer):
        rule, way_out = "must return a torch optimiser", "Example: torch.optim.AdamW(parameters, lr=lr)"
        raise InvalidValue(f"The optimiser {train.optimizer!r}", rule, type(made).__name__, way_out)


def _check_augmentation(augmentation: Augmentation, method: Method, x: Array) -> None:
    import torch

    if method.masking.teaches:
        rule = f"must be none with masking {method.masking.name!r}, which learns from its own predictions"
        raise InvalidValue("Scenario.train.augmentation", rule, repr(augmentation.name))
    some = torch.from_numpy(np.array(x[:2]))
    made = augmentation.apply(some, np.random.default_rng(0))
    if made.shape != some.shape:
        rule = f"must return samples of the same shape {tuple(some.shape[1:])}"
        raise InvalidValue(f"The augmentation {augmentation.name!r}", rule, tuple(made.shape[1:]))


def _check_loop(scenario: Scenario, loop: Loop, method: Method, device: str) -> None:
    """Checks that nothing else wants to come between the steps of a loop of its own."""
    field, way_out = "Scenario.train.loop", 'Example: train.loop = "steps"'
    if method.objective.overrides(Objective.adjust):
        rule = f"must be steps with objective {method.objective.name!r}, which adds to the gradient of every step"
        raise InvalidValue(field, rule, repr(loop.name), way_out)
    if scenario.diagnostics.gradients:
        rule = "must be steps with diagnostics.gradients, which measures the gradient of every step"
        raise InvalidValue(field, rule, repr(loop.name), way_out)
    if device != "cpu":
        rule = f"must be steps on {device!r}: a loop of its own gets a module on the CPU"
        raise InvalidValue(field, rule, repr(loop.name), 'Set train.device = "cpu"')


def check_model(source: ModelSource, data: Dataset, criteria: Criteria, num_samples: Array, scenario: Scenario) -> None:
    """Raises one sentence before the first round if model, samples and loss do not fit."""
    from airprune.models.dry_run import check_fit  # by torch

    module = source.module().double() if scenario.model.float64 else source.module().float()
    check_fit(module, data, criteria, num_samples, batch_size=scenario.train.batch_size)


def _check_deadline(scenario: Scenario, method: Method) -> None:
    """Checks that compression levels are chosen where the deadline is: nothing else shows what a shorter one costs."""
    if scenario.plan.deadline_s != "auto" or method.scheme.chooses_work:
        return
    if not (method.scheme.chooses_codes and method.compression.overrides(Compression.ladder)):
        got = f"scheme {method.scheme.name!r} with compression {method.compression.name!r}"
        rule = 'can be "auto" only with scheme "work", or a scheme and a compression that choose compression levels'
        raise InvalidValue("Scenario.plan.deadline_s", rule, got, 'Example: method = "adaptive-bits"')


def _check_promise(scenario: Scenario, method: Method) -> None:
    """Checks that a plan which leaves time for stragglers neither chooses clocks nor local steps."""
    if scenario.plan.on_time is None or not scenario.events.straggler_probability:
        return
    scheme = method.scheme
    if scheme.chooses_work or scheme.needs_limits or scenario.plan.max_energy_j is not None:
        rule = f"must not be given with stragglers and scheme {scheme.name!r}, which chooses clocks or local steps"
        got, way_out = f"{scenario.plan.on_time:g}", "Set events.straggler_probability = 0, or leave it out"
        raise InvalidValue("Scenario.plan.on_time", rule, got, way_out)


def _check_work(scenario: Scenario, method: Method) -> None:
    """Checks that planned parts and local steps are not changed by others after planning."""
    if not method.scheme.chooses_work:
        return
    if scenario.radio.pilots:
        rule = f"must be 0 with scheme {method.scheme.name!r}, which plans without the time of pilots"
        raise InvalidValue("Scenario.radio.pilots", rule, scenario.radio.pilots)
    if scenario.train.steps_decay != "none":
        rule = f"must be none with scheme {method.scheme.name!r}, which plans local steps itself"
        raise InvalidValue("Scenario.train.steps_decay", rule, scenario.train.steps_decay)
    if method.topology.overrides(Topology.relay):
        rule = f"must not let devices upload for each other with scheme {method.scheme.name!r}"
        raise InvalidValue(
            "Scenario.topology.name", rule, method.topology.name, 'Example: topology.name = "hierarchical"'
        )


def _check_relay(scenario: Scenario, method: Method) -> None:
    """Checks that updates can be added where devices add up each other's; compressed ones cannot, but votes can."""
    if method.edge.compares and method.topology.overrides(Topology.relay):
        rule = f"must not compare devices with topology {method.topology.name!r}, whose devices add up their updates"
        raise InvalidValue("Scenario.aggregation.edge", rule, repr(method.edge.name), 'Example: "masked-mean"')
    if method.edge.by_group and method.topology.masters:
        return
    # Enough weights that a compression which excludes some does exclude some.
    wire = Wire(value_bits=scenario.plan.bits_per_weight, num_weights=1_000_000, num_tensors=1)
    if method.topology.overrides(Topology.relay) and not method.compression.exact(wire):
        rule = f"must leave values as they are with topology {method.topology.name!r}, whose devices add them up"
        way_out = 'Example: compression.name = "cast"'
        raise InvalidValue("Scenario.compression.name", rule, repr(method.compression.name), way_out)


def _check_steps(scenario: Scenario, method: Method) -> None:
    """Checks for SGD where the objective reads a device's mean gradient off its path."""
    optimizer = scenario.train.optimizer
    if method.objective.plain_steps and optimizer != "sgd":
        rule = f"must be 'sgd' for objective {method.objective.name!r}, which reads mean gradients off updates"
        raise InvalidValue("Scenario.train.optimizer", rule, repr(optimizer), 'Example: train.optimizer = "sgd"')


def _check_contributors(scenario: Scenario, method: Method, num_devices: int) -> None:
    """Checks that an edge knows how many devices kept each weight, and that there are enough devices."""
    least, field = scenario.aggregation.min_contributors, "Scenario.aggregation.min_contributors"
    if least > 1 and method.edge.by_group:
        rule = f"must be 1 with aggregation {method.edge.name!r}: a group's vote does not say how many made it"
        raise InvalidValue(field, rule, least, 'Example: aggregation.edge = "vote"')
    if least > num_devices:
        raise InvalidValue(field, f"must be at most {num_devices}, the number of devices", least)


def _check_privacy(scenario: Scenario, method: Method, shape: ModelShape) -> None:
    """Checks that all that leaves a device can be clipped and carry noise, which running averages cannot."""
    settings = scenario.privacy
    if shape.num_state > shape.num_parameters:
        rule = "must be none for a model with buffers, such as running variances, which noise could make negative"
        way_out = "Choose a model without batch normalisation"
        raise InvalidValue("Scenario.privacy.clip_norm", rule, settings.clip_norm, way_out)
    if not settings.noise_multiplier:
        return
    for part in ("masking", "objective", "selection"):
        component: LocalComponent = getattr(method, part)
        if component.sends_reports:
            name = component.name
            rule = f"must be 0 with {part} {name!r}, whose devices report more of their data than their update"
            field, way_out = "Scenario.privacy.noise_multiplier", f"Choose another {part}.name"
            raise InvalidValue(field, rule, settings.noise_multiplier, way_out)
