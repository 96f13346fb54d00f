"""A metric of one's own is computed on all test outputs at once, whichever engine evaluates and however many models."""

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import airprune as ap
from airprune.models.catalogue import MLP
from airprune.models.losses import LOSSES
from airprune.models.losses.own import criteria_of
from airprune.rounds.training.worker import TEST_PART
from support.tiny import blobs, last_state, tiny_scenario

TRAIN, (TEST_X, TEST_Y) = blobs(num_test=2 * TEST_PART + 30)
# Three parts, the last one smaller than a minibatch; class after class, so that no part is like another.
DATA = TRAIN, (TEST_X[np.argsort(TEST_Y, kind="stable")], np.sort(TEST_Y))


def f1(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of class 1: 2 TP / (2 TP + FP + FN)."""
    found, wanted = outputs.argmax(1) == 1, targets == 1
    return 2 * (found & wanted).sum() / (found.sum() + wanted.sum())


def weighted() -> nn.Module:
    """A mean over samples weighted by class: the parts' own means do not add up."""
    return nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 1.0, 0.1]))


def f1_by_hand(predicted: np.ndarray, labels: np.ndarray) -> float:
    hits = np.count_nonzero((predicted == 1) & (labels == 1))
    return 2 * hits / (np.count_nonzero(predicted == 1) + np.count_nonzero(labels == 1))


def mlp() -> nn.Module:
    torch.manual_seed(1)
    return MLP((12,), 4)


def final_outputs(folder, members: int = 1) -> list[torch.Tensor]:
    weights = safetensors.torch.load_file(folder / "final.safetensors")
    found = []
    for number in range(members):
        module, prefix = mlp(), f"{number}." if members > 1 else ""
        module.load_state_dict({name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)})
        with torch.no_grad():
            found.append(module.eval()(torch.from_numpy(DATA[1][0])))
    return found


@pytest.mark.parametrize("engine", [{"name": "serial"}, {"name": "processes", "workers": 2}], ids=lambda e: e["name"])
def test_f1_and_a_weighted_loss_are_those_of_all_test_outputs(tmp_path, engine):
    scenario = tiny_scenario(rounds__global_rounds=1, train__learning_rate=0.005)
    scenario = scenario.with_values({f"engine.{key}": value for key, value in engine.items()})
    *_, last = ap.run(scenario, out=tmp_path, model=mlp(), dataset=DATA, metric=f1, loss=weighted())
    (outputs,), labels = final_outputs(tmp_path), DATA[1][1]
    assert last["test_f1"] == pytest.approx(f1_by_hand(outputs.argmax(1).numpy(), labels), rel=1e-6)  # in float32
    assert last["test_loss"] == pytest.approx(float(weighted()(outputs, torch.from_numpy(labels))), rel=1e-6)


@pytest.mark.slow
def test_a_cluster_gives_the_same_f1():
    given = {"model": mlp(), "dataset": DATA, "metric": f1}
    scenario = tiny_scenario(rounds__global_rounds=1, train__learning_rate=0.005)
    *_, here = ap.run(scenario, **given)
    *_, there = ap.run(scenario.with_values({"engine.name": "dask", "engine.workers": 2}), **given)
    assert here == there


def test_models_that_predict_together_have_the_f1_of_their_mean_prediction(tmp_path):
    scenario = tiny_scenario(rounds__global_rounds=1, train__learning_rate=0.005, topology__name="ensemble")
    *_, last = ap.run(scenario, out=tmp_path, model=mlp(), dataset=DATA, metric=f1)
    mean = torch.stack([outputs.softmax(1) for outputs in final_outputs(tmp_path, members=2)]).mean(0)
    assert last["test_f1"] == pytest.approx(f1_by_hand(mean.argmax(1).numpy(), DATA[1][1]), rel=1e-6)


def test_devices_with_layers_of_their_own_are_each_evaluated_on_all_their_samples_at_once():
    def span(outputs, targets):
        return float(len(targets))  # how many samples it sees at once

    scenario = tiny_scenario(rounds__global_rounds=1, model__personal=("last",))
    _, _, experiment = last_state(scenario)
    sizes = [len(samples) for samples in experiment.own_tests]
    assert min(sizes) > 64  # more than a minibatch of the evaluation
    *_, last = ap.run(scenario, dataset=blobs(), metric=span)
    assert last["test_span"] == pytest.approx(np.average(sizes, weights=sizes), rel=1e-12)


def test_a_metric_of_ones_own_leaves_a_built_in_loss_alone_to_the_bit():
    scenario = tiny_scenario(train__kernel="torch")
    plain, own = (list(ap.run(scenario, dataset=DATA, **given)) for given in ({}, {"metric": f1}))
    assert [r["test_loss"] for r in own if "test_loss" in r] == [r["test_loss"] for r in plain if "test_loss" in r]


def test_every_built_in_loss_and_mean_over_samples_has_sums_that_add_up():
    for loss in [name for name in LOSSES if name != "tokens"]:  # a mean over the positions that have targets
        for metric in ("accuracy", "mae"):
            assert criteria_of(ap.Scenario().with_values({"train.loss": loss, "train.metric": metric})).adds_up
