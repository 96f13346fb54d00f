"""Majority votes: hand values, ties, and runs of sign-SGD."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import airprune as ap
from airprune.aggregation import AGGREGATIONS
from airprune.components import paper_shape
from airprune.compute.times import compute_times
from airprune.compute.work import LayerWork, ModelWork
from airprune.federation.method import Chosen, Method
from airprune.federation.summing import add_child
from airprune.simulation.experiment import Experiment
from support.tiny import blobs, tiny_scenario

VOTE = AGGREGATIONS["vote"]


def voted(children, previous, *, rate=0.5, masks=None, weights=None):
    """All entries prunable; children's models are given as moves from the previous one."""
    previous = np.asarray(previous)
    chosen = Chosen(VOTE, VOTE.Options()).at_rate(rate)
    total = VOTE.Sum.zeros(previous.size, slice(0, previous.size))
    for n, move in enumerate(children):
        mask = None if masks is None else np.array(masks[n])
        state = previous + np.array(move, dtype=previous.dtype)
        weight = 1.0 if weights is None else weights[n]
        add_child(chosen, total, state if mask is None else state * mask, mask, weight, previous)
    return chosen("finish", total, previous)


def test_the_majority_of_three_gradients():
    """(1, −2), (−3, −1), (.5, 4): the majority is (+1, −1), and the parent goes against it."""
    gradients = np.array([[1.0, -2.0], [-3.0, -1.0], [0.5, 4.0]])
    assert voted(-gradients, np.zeros(2)).tolist() == [-0.5, 0.5]
    assert voted(-gradients[[2, 0, 1]], np.zeros(2)).tolist() == [-0.5, 0.5]


def test_a_tie_moves_nothing_even_where_float32_cannot_hold_the_moves():
    previous = np.array([0.1, 3.3333, -7e3], dtype=np.float32)
    assert np.array_equal(voted([[0.01] * 3, [-0.03] * 3], previous), previous)


def test_who_did_not_send_a_weight_has_no_vote_and_groups_vote_by_size():
    masks = [[True, False], [True, True], [False, True]]
    assert voted([[1, 1], [1, -1], [-1, -1]], np.array([5.0, 5.0]), masks=masks).tolist() == [5.5, 4.5]
    two_groups = [[1.0], [-1.0]]
    assert voted(two_groups, np.zeros(1)).tolist() == [0.0]
    assert voted(two_groups, np.zeros(1), weights=[2.0, 1.0]).tolist() == [0.5]


def test_the_rate_of_a_vote_is_that_of_the_round_or_its_own():
    assert VOTE.at_rate(VOTE.Options(), 0.25).rate == 0.25
    assert VOTE.at_rate(VOTE.Options(rate=0.01), 0.25).rate == 0.01


def one_device(tmp_path, name, **changes):
    """One round of one device with one step of 0.05."""
    values = {"network__num_edges": 1, "network__devices_per_edge": 1, "rounds__global_rounds": 1}
    values |= {"rounds__edge_rounds": 1, "train__local_steps": 1, "model__float64": True, **changes}
    scenario = tiny_scenario(method=name, **values)
    records = list(ap.run(scenario, out=tmp_path / name, dataset=blobs()))
    start = Experiment.of(scenario, dataset=blobs())
    weights = load_file(tmp_path / name / "final.safetensors")
    return records, start, weights


def test_one_device_and_one_step_is_sign_sgd(tmp_path):
    _, start, plain = one_device(tmp_path, "hierfavg")
    records, _, voted_model = one_device(tmp_path, "hier-sign")
    before = dict(start.model.module.named_parameters())
    assert set(before) == set(plain)
    for name, tensor in before.items():
        old = tensor.detach().numpy()
        sign = np.sign(plain[name] - old)
        moved = voted_model[name] - old
        np.testing.assert_allclose(moved[sign != 0], 0.05 * sign[sign != 0], rtol=1e-12)  # one rounding of old + η
    assert records[0]["num_samples"] == 16  # one minibatch
    assert records[0]["uploaded_bits"] == start.shape.num_weights  # one bit per weight


@pytest.mark.parametrize("steps", [None, 1, 3, 7, 20, 100])
def test_passes_on_the_clock_are_those_of_training(steps, tmp_path):
    """40 samples in minibatches of 16, two epochs: 16, 16, 8, 16, 16, 8."""
    values = {"train__local_steps": steps, "rounds__global_rounds": 1, "rounds__edge_rounds": 1}
    scenario = tiny_scenario(**values)
    expected = sum(([16, 16, 8] * 2)[:steps])
    assert scenario.train.samples_seen(np.array([40.0])).tolist() == [expected]
    layer = LayerWork(name="fc1", prunable=True, forward=2.0, input_gradient=0.0, weight_gradient=2.0)
    times = compute_times(
        scenario.with_values({"clock.compute": "flops", "clock.flops_per_cycle": 1.0}),
        Method.of(scenario).masking,
        shape=paper_shape(),
        num_samples=np.array([40]),
        cpu_hz=np.array([1e9]),
        work=lambda: ModelWork(layers=(layer,)),
    )
    assert times.passes.tolist() == [expected]
    if steps == 7:
        trained = next(iter(ap.run(scenario, out=tmp_path, dataset=blobs())))["num_samples"]
        assert trained == 6 * expected
