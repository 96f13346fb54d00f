"""SCAFFOLD: two rounds by hand, and the control variates of whole runs."""

from types import SimpleNamespace

import numpy as np
import pytest

import airprune as ap
from airprune.engines.serial import SerialEngine
from airprune.errors import InvalidValue
from airprune.methods.objectives import OBJECTIVES
from airprune.methods.objectives.base import LocalRun
from airprune.methods.objectives.scaffold import COMMON, MOVED, OWN
from airprune.methods.outcome import GlobalOutcome
from airprune.rounds.experiment import Experiment
from airprune.rounds.optimisers import gradients_in_update
from airprune.runs.driver import InProcess, opened_store
from airprune.simulation import run_rounds
from support.tiny import blobs, tiny_scenario

SCAFFOLD = OBJECTIVES["scaffold"]()
TARGETS = np.array([[1.0, 0.0], [3.0, 2.0], [-1.0, 4.0]])


def device(received, target, memory, *, rate=0.5, steps=2):
    """½‖w − t‖² in full batches."""
    weights = received.copy()
    for _ in range(steps):
        gradient = weights - target
        SCAFFOLD.adjust(gradient, weights, received, memory)
        weights -= rate * gradient
    run = LocalRun(
        view=None,
        received=received,
        trained=weights,
        learning_rate=rate,
        num_steps=steps,
        gradients=steps,
        loss=0.0,
        num_samples=steps,
    )
    return weights, memory | SCAFFOLD.finish(run, memory)


def test_two_rounds_on_three_quadratics():
    own, values = np.zeros((3, 2)), {COMMON: np.zeros(2), MOVED: np.zeros(2)}
    model, seen = np.zeros(2), []
    for _ in range(2):
        models = []
        for n, target in enumerate(TARGETS):
            before = {OWN: own[n], COMMON: values[COMMON]}
            trained, after = device(model, target, before)
            values |= SCAFFOLD.after_edge_round(SimpleNamespace(sums=SCAFFOLD.report(None, before, after)), values)
            own[n] = after[OWN]
            models.append(trained)
        values |= SCAFFOLD.after_global_round(GlobalOutcome(num_devices=3), values)
        model = np.mean(models, axis=0)
        seen.append((model.tolist(), values[COMMON].tolist()))
        np.testing.assert_allclose(values[COMMON], own.mean(axis=0), rtol=1e-15)
    assert seen[0] == ([0.75, 1.5], [-0.75, -1.5])  # all numbers are dyadic, so every one of them is exact
    assert seen[1] == ([0.9375, 1.875], [-0.1875, -0.375])


def test_what_cannot_move_keeps_its_control_variate():
    own = np.array([0.5, -0.25])
    run = LocalRun(
        view=None,
        received=np.array([1.0, 2.0]),
        trained=np.array([0.0, 1.5]),
        learning_rate=0.5,
        num_steps=1,
        gradients=1.0,
        loss=0.0,
        num_samples=1,
        moves=np.array([False, True]),
    )
    new = SCAFFOLD.finish(run, {OWN: own, COMMON: np.array([1.0, 1.0])})[OWN]
    assert new.tolist() == [0.5, -0.25 - 1.0 + 1.0]


def test_uploads_are_twice_as_large_for_planner_clock_and_links():
    changes = {"topology__name": "tree", "topology__tree__nodes": [1], "topology__tree__rate_bps": [1e8, 1e8]}
    plain, twice = (
        Experiment.of(tiny_scenario(method=name, **changes), dataset=blobs()) for name in ("hierfavg", "scaffold")
    )
    assert twice.backhaul.bits == 2 * plain.backhaul.bits == 2 * 64 * plain.shape.num_weights
    keep = np.array([plain.shape.prunable_weights])
    bits = [one.context.upload_bits(keep, one.context.charges(0))[0] for one in (plain, twice)]
    assert bits[1] == 2 * bits[0] == twice.backhaul.bits


def test_steps_that_are_no_sums_of_gradients_are_refused():
    with pytest.raises(InvalidValue, match=r"train\.optimizer must be 'sgd' for objective 'scaffold'"):
        Experiment.of(tiny_scenario(method="scaffold", train__optimizer="adam"), dataset=blobs())


def test_with_momentum_the_variate_is_the_mean_of_the_gradients_by_their_factors():
    """v ← m v + g, w ← w − η v: gradients 4, 1 and momentum ½ move w by η (1.5 · 4 + 1 · 1), ‖a‖₁ = 2.5: mean 2.8."""
    assert float(gradients_in_update("sgd", 0.5, 2)) == 2.5
    run = LocalRun(
        view=None,
        received=np.array([10.0]),
        trained=np.array([10.0 - 0.25 * (1.5 * 4.0 + 1.0 * 1.0)]),
        learning_rate=0.25,
        num_steps=2,
        gradients=2.5,
        loss=0.0,
        num_samples=1,
    )
    assert SCAFFOLD.finish(run, {OWN: np.zeros(1), COMMON: np.zeros(1)})[OWN] == pytest.approx([2.8], rel=1e-15)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_clouds_variate_is_the_mean_of_the_devices_after_every_global_round(tmp_path, momentum):
    scenario = tiny_scenario(method="scaffold", data__partition="shards").with_("train.momentum", momentum)
    experiment = Experiment.of(scenario, dataset=blobs())
    state = experiment.initial_state()
    state.store = opened_store(experiment, tmp_path)
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        list(run_rounds(experiment, engine, state))
    own = state.store.take(range(6))[OWN]
    assert np.abs(own).max() > 1e-3
    np.testing.assert_allclose(state.values[COMMON], own.astype(np.float64).mean(axis=0), rtol=1e-12, atol=1e-15)
    assert not state.values[MOVED].any()


def test_the_recipe_switches_momentum_off():
    assert ap.Scenario().with_("train.momentum", 0.9).with_("method", "scaffold").train.momentum == 0.0
