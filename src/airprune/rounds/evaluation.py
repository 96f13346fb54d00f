"""Evaluation of models: on the test set, on devices' own samples, and of the sub-model that a device holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from airprune.engines.base import Engine
from airprune.methods.masking.base import Masking
from airprune.methods.topology.base import Topology
from airprune.rounds.cloud import combined_now
from airprune.rounds.experiment import Experiment
from airprune.rounds.fairness import fairness, smaller_is_better
from airprune.rounds.messages import Orders
from airprune.rounds.parts import MEDIAN, SHARED
from airprune.rounds.sending import SLOTS
from airprune.rounds.state import RunState
from airprune.rounds.training.worker import TEST_PART, HeldTest, OwnTest

Array = np.ndarray


def global_metrics(run: Experiment, engine: Engine, state: RunState) -> dict[str, Any]:
    """Returns the metrics of a global round's record: those of its model, and those that only some methods count."""
    metrics: dict[str, Any] = {}
    if run.method.topology.overrides(Topology.relay):
        metrics = {"d2d_bits": state.totals.d2d_bits, "d2d_energy_j": state.totals.d2d_energy_j}
    if run.scenario.rounds.evaluate_every != "never":
        metrics |= accuracy_of(run, engine, state)
    if state.diverged:
        return metrics | {"diverged": state.diverged}
    if run.scenario.evaluation.devices:
        metrics |= metrics_by_device(run, engine, state)
    if tests := held_tests(run, state):
        parts = engine.map("evaluate_held", top_models(run, state)[0], tests)
        if run.criteria.is_accuracy:
            metrics["device_accuracy"] = sum(correct for _, correct in parts) / len(run.dataset.test_y)
    if run.scenario.diagnostics.gradients:
        metrics["gradient_sq"] = gradient_sq(run, engine, state.global_state)
    return metrics


def accuracy_of(run: Experiment, engine: Engine, state: RunState, *, now: bool = False) -> dict[str, Any]:
    """Returns loss and metric of the models' mean prediction on the test set.

    Parts of the test set are evaluated in parallel and added in order. The models are those of `evaluated_models`.

    A loss or metric whose sums over parts do not add up gets the predictions of all parts at once. Where devices have
    layers of their own, the means over devices, each evaluated on samples like its own, at once. NaN if training
    diverged.
    """
    criteria = run.criteria
    if state.diverged:
        return {"test_loss": math.nan} | ({} if criteria.metric is None else {criteria.key: math.nan})
    models = evaluated_models(run, state, now=now)
    if state.store is not None and run.shape.num_personal:
        tests = own_tests(run, state, run.own_tests)
        parts, size = list(engine.map("evaluate_own", models[0], tests)), sum(len(test.samples) for test in tests)
    else:
        targets, size = run.dataset.test_y, len(run.dataset.test_y)
        starts = range(0, size, TEST_PART)
        if criteria.adds_up:
            parts = list(engine.map("evaluate", models, starts))
        else:
            from airprune.rounds.training.torch_evaluator import totals_of_arrays

            outputs = list(engine.map("predict", models, starts))
            parts = [totals_of_arrays(outputs, targets, criteria, like=models)]
    found = {"test_loss": sum(loss for loss, _ in parts) / size}
    if criteria.metric is not None:
        found[criteria.key] = sum(score for _, score in parts) / size
    return found | further_metrics(run, engine, models)


def further_metrics(run: Experiment, engine: Engine, models: Array) -> dict[str, Any]:
    """Returns the metrics of `evaluation.metrics`, numbers or lists; accuracy only where outputs are class scores."""
    criteria, data = run.criteria, run.dataset
    if not criteria.more:
        return {}
    from airprune.rounds.training.torch_evaluator import values_of_arrays

    outputs = np.concatenate(list(engine.map("predict", models, range(0, len(data.test_y), TEST_PART))))
    has_scores = outputs.ndim == data.test_y.ndim + 1 and outputs.shape[1] >= data.num_classes
    wanted = [metric for metric in criteria.more if has_scores or metric.name != "accuracy"]
    return values_of_arrays(outputs, data.test_y, wanted, like=models)


def metrics_by_device(run: Experiment, engine: Engine, state: RunState) -> dict[str, Any]:
    """Returns the metric on every device's own test samples, by device and by edge, and its fairness over devices.

    A device is evaluated with the layers that it keeps to itself. An edge has the samples of the devices it serves.
    The list of devices is left out where `records.devices` is a number.
    """
    models, size = evaluated_models(run, state), np.array([len(own) for own in run.held_out])
    tested = np.flatnonzero(size)
    if state.store is not None and run.shape.num_personal:
        all_tests = own_tests(run, state, run.held_out)
        parts = list(engine.map("evaluate_own", models[0], [all_tests[n] for n in tested]))
    else:
        parts = list(engine.map("evaluate_on", models, [run.held_out[n] for n in tested]))
    has_metric = run.criteria.metric is not None
    key = run.criteria.key if has_metric else "test_loss"
    total = np.zeros(len(size))
    total[tested] = [score if has_metric else loss for loss, score in parts]
    edge = run.stations.serving(state.values)
    by_edge = [
        np.bincount(edge, weights=weights, minlength=run.network.num_edges).tolist() for weights in (total, size)
    ]
    value = np.divide(total, size, out=np.full(len(size), math.nan), where=size > 0)
    found: dict[str, Any] = {}
    if run.scenario.records.devices == "all":
        found[f"{key}_by_device"] = value.tolist()
    found[f"{key}_by_edge"] = [all_of / count if count else None for all_of, count in zip(*by_edge, strict=True)]
    figures = fairness(value, smaller_is_better=smaller_is_better(key))
    return found | {f"{key}_{name}": figure for name, figure in figures.items()}


def own_tests(run: Experiment, state: RunState, samples: Sequence[Array]) -> list[OwnTest]:
    """Returns the tests of all devices, each with its own layers."""
    assert state.store is not None
    return [
        OwnTest(memory={name: rows[0] for name, rows in state.store.take([n]).items() if name in SLOTS}, samples=own)
        for n, own in enumerate(samples)
    ]


def gradient_sq(run: Experiment, engine: Engine, model_state: Array) -> float:
    """‖∇F(w_q)‖², F being the mean loss on the test set; the left side of Eq. (22), before 1/W."""
    size = len(run.dataset.test_y)
    parts = engine.map("test_gradient", model_state, range(0, size, TEST_PART))
    gradient = sum(parts) / size
    return float(np.square(gradient).sum())


def evaluated_models(run: Experiment, state: RunState, *, now: bool = False) -> Array:
    """Returns the models whose mean prediction is evaluated, as the method uses them.  [num_models, num_state]"""
    models, masking = top_models(run, state, now=now), run.method.masking
    if not masking.overrides(Masking.evaluated):
        return models
    return np.stack([masking.evaluated(run.shape, model, state.values) for model in models])


def top_models(run: Experiment, state: RunState, *, now: bool = False) -> Array:
    """Returns the cloud's model, or several that stay apart; `now`: as if every level below combined at once."""
    top = run.method.topology.top
    return combined_now(run, state, top) if now else state.models[run.tree.nodes(top)]


def held_tests(run: Experiment, state: RunState) -> list[HeldTest]:
    """Parts of the test of what the median device of the last edge round holds; none if there was none."""
    if not len(state.values.get(MEDIAN, ())):
        return []
    device, keep, global_round, step, round_index = state.values[MEDIAN].tolist()
    shared = state.values[SHARED]
    memory = {} if state.store is None else {n: rows[0] for n, rows in state.store.take([device]).items()}
    orders = Orders(
        device=device,
        keep=keep,
        learning_rate=run.learning_rate(state),
        round_index=round_index,
        memory=memory,
    )
    return [
        HeldTest(orders=orders, shared=shared if len(shared) else None, place=(global_round, step), start=start)
        for start in range(0, len(run.dataset.test_y), TEST_PART)
    ]
