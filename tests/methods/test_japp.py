"""Layers that stay on their devices: what they cost, who moves them, how they are judged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import airprune as ap
from airprune.errors import InvalidValue, UnknownName
from airprune.models.catalogue import FlatModel, build_model
from airprune.rounds.sending import BEGUN, OWN, samples_like
from support.tiny import blobs, last_state, tiny_scenario

PERSONAL = 64 * 4 + 4  # the MLP's last layer on blobs: 256 weights and 4 biases
SHARED = 12 * 64


def flat(personal=("last",)):
    module = build_model("paper-cnn", input_shape=(1, 28, 28), num_classes=10, seed=0)
    return FlatModel(module, personal=personal)


def japp(**changes):
    unlike = {"data__partition": "shards", "data__classes_per_device": 2}
    return tiny_scenario(**{"method": "japp", **unlike, **changes})


def test_the_planner_sees_the_papers_cnn_without_its_last_layer():
    shape, whole = flat().shape, flat(()).shape
    assert (shape.fixed_weights, shape.prunable_weights) == (18_720, 25_168 - 80)
    assert (shape.num_personal, shape.personal_weights) == (90, 80)
    assert shape.num_weights == whole.num_weights - 80 and shape.num_state == whole.num_state
    assert not shape.is_weight[shape.personal].any()


def test_layers_are_named_and_one_must_be_left_to_prune():
    assert flat(("fc2",)).shape.num_personal == flat().shape.num_personal
    with pytest.raises(UnknownName, match=r"Scenario\.model\.personal 'fc9' is unknown"):
        flat(("fc9",))
    with pytest.raises(InvalidValue, match=r"^Scenario\.model\.personal must leave a layer that can be pruned"):
        flat(("fc1", "last"))


def test_personal_layers_are_computed_but_not_sent():
    """T_cmp as of the whole model, bits as of the rest."""
    ours = next(ap.run(japp(), dataset=blobs()))
    whole = next(ap.run(japp(model__personal=[]), dataset=blobs()))
    assert ours["compute_s"] == pytest.approx(whole["compute_s"], rel=1e-12)
    assert ours["uploaded_bits"] == 6 * 64 * SHARED
    assert whole["uploaded_bits"] - ours["uploaded_bits"] == 6 * 64 * 256


def test_without_personal_layers_it_is_the_papers_method_bit_for_bit():
    tight = {"plan__deadline_s": 0.0003, "rounds__global_rounds": 1}
    ours, _, _ = last_state(japp(model__personal=[], **tight))
    theirs, _, _ = last_state(japp(method="adaptive-pruning", **tight))
    assert np.array_equal(ours.models, theirs.models) and ours.totals == theirs.totals


def test_the_cloud_keeps_personal_layers_as_they_started_and_devices_have_their_own():
    state, _, experiment = last_state(japp(plan__deadline_s=0.0003, rounds__global_rounds=1))
    start, shape = experiment.model.state_array, experiment.shape
    assert shape.num_personal == PERSONAL
    assert np.array_equal(state.global_state[shape.personal], start[shape.personal])
    assert not np.array_equal(state.global_state[shape.prunable], start[shape.prunable])
    memory = state.store.take(range(6))
    assert memory[BEGUN].all() and len({row.tobytes() for row in memory[OWN]}) == 6


def test_one_device_trains_as_it_would_alone():
    """With nobody to average with, it makes no difference which layers travel."""
    alone = {"network__num_edges": 1, "network__devices_per_edge": 1, "model__float64": True, "data__partition": "iid"}
    state, _, experiment = last_state(japp(**alone))
    plain, _, whole = last_state(japp(model__personal=[], **alone))
    own = state.global_state.copy()
    own[experiment.shape.personal] = state.store.take([0])[OWN][0]
    ours, theirs = experiment.model.named_arrays(own), whole.model.named_arrays(plain.global_state)
    for name, weights in ours.items():
        assert np.array_equal(weights, theirs[name]), name


def test_a_device_is_judged_on_classes_in_its_own_proportions():
    test_y = np.repeat([0, 1, 2, 3], [5, 50, 500, 3])
    rng = np.random.default_rng(0)
    labels = test_y[samples_like(np.repeat([0, 2, 9], [30, 10, 7]), test_y, 40_000, rng)]
    shares = np.bincount(labels, minlength=4) / 40_000
    assert shares[[1, 3]].tolist() == [0.0, 0.0]  # and class 9, which nobody can test, is left out
    assert abs(shares[0] - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 40_000)  # five standard deviations
    assert len(samples_like(np.array([9]), test_y, 10, rng)) == 10


def test_accuracy_is_the_mean_over_devices_of_their_own_models():
    state, records, experiment = last_state(japp(rounds__global_rounds=1))
    model, right, loss = experiment.model, 0, 0.0
    memory = state.store.take(range(6))
    for device, samples in enumerate(experiment.own_tests):
        own = state.global_state.copy()
        own[experiment.shape.personal] = memory[OWN][device]
        model.load(own)
        model.module.eval()
        with torch.no_grad():
            x, y = (torch.from_numpy(a[samples]) for a in (experiment.dataset.test_x, experiment.dataset.test_y))
            outputs = model.module(x)
            right += int((outputs.argmax(1) == y).sum())
            loss += float(nn.functional.cross_entropy(outputs, y, reduction="sum"))
    assert records[-1]["test_accuracy"] == pytest.approx(right / 600, rel=1e-12)
    assert records[-1]["test_loss"] == pytest.approx(loss / 600, rel=1e-6)  # float32, in other batches


def test_codes_know_nothing_of_personal_layers():
    for compression in ("sign", "top-k"):
        record = next(ap.run(japp(compression__name=compression), dataset=blobs()))
        assert record["uploaded_bits"] > 0  # charged and sent bits are compared in every round
