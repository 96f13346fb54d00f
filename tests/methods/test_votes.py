"""Majority votes: hand values, ties, and runs of sign-SGD."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import airprune as ap
from airprune.components.component import paper_shape
from airprune.errors import InvalidValue
from airprune.methods.aggregation import AGGREGATIONS
from airprune.rounds.compute_times import compute_times
from airprune.rounds.experiment import Experiment
from airprune.rounds.method import Method
from airprune.rounds.sums import add_child
from airprune.wireless.device_speed.work import LayerWork, ModelWork
from support.tiny import blobs, tiny_scenario

VOTE = AGGREGATIONS["vote"]


def voted(children, previous, *, rate=0.5, masks=None, weights=None):
    """All entries prunable; children's models are given as moves from the previous one."""
    previous = np.asarray(previous)
    chosen = VOTE().at_rate(rate)
    total = VOTE.Sum.zeros(previous.size, slice(0, previous.size))
    for n, move in enumerate(children):
        mask = None if masks is None else np.array(masks[n])
        state = previous + np.array(move, dtype=previous.dtype)
        weight = 1.0 if weights is None else weights[n]
        add_child(chosen, total, state if mask is None else state * mask, mask, weight, previous)
    return chosen.finish(total, previous)


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
    assert VOTE().at_rate(0.25).rate == 0.25
    assert VOTE(rate=0.01).at_rate(0.25).rate == 0.01
    in_groups = AGGREGATIONS["group-vote"](masters="alike").at_rate(0.25)
    assert (in_groups.rate, in_groups.masters) == (0.25, "alike")


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


GROUP_VOTE = AGGREGATIONS["group-vote"]


def group_voted(signs, heads, *, chunks=None, masks=None, **options):
    """The move of one edge from 0 at a rate of 1, its devices' signs added in these chunks."""
    chosen = GROUP_VOTE(**options).at_rate(1.0)
    previous = np.zeros(len(signs[0]))
    parts = []
    for chunk in chunks or [range(len(signs))]:
        total = GROUP_VOTE.Sum.zeros(previous.size, slice(0, previous.size))
        for n in chunk:
            mask = None if masks is None else np.array(masks[n])
            state = np.array(signs[n], dtype=np.float64)
            add_child(chosen, total, state, mask, 1.0, previous, (n, heads[n]))
        parts.append(total)
    for part in parts[1:]:
        parts[0].merge(part)
    return chosen.finish(parts[0], previous)


def test_groups_of_two_and_one_vote_by_size_and_would_tie_alike():
    signs, masters = [[1], [1], [-1]], [0, 0, 2]
    assert group_voted(signs, masters).tolist() == [1.0]
    assert group_voted(signs, masters, masters="alike").tolist() == [0.0]


def test_a_tie_inside_a_group_is_as_its_master_says_because_one_bit_has_no_zero():
    """A master with −, a member with +: the group says −, with two votes against one."""
    signs, masters = [[1], [-1], [1]], [1, 1, 2]
    assert group_voted(signs, masters).tolist() == [-1.0]
    assert group_voted([[1], [-1], [1], [-1]], [0, 0, 3, 3]).tolist() == [0.0]  # the edge's own tie moves nothing


def test_a_vote_in_groups_is_not_the_vote_of_all():
    """Two groups of three with 2 : 1 each for + outvote four devices for −, of which two vote alone."""
    signs, masters = [[1], [1], [-1], [1], [1], [-1], [-1], [-1]], [0, 0, 0, 3, 3, 3, 6, 7]
    assert group_voted(signs, masters).tolist() == [1.0]
    assert voted(signs, np.zeros(1)).tolist() == [0.0]


def test_groups_split_over_chunks_vote_as_one_and_by_hand():
    rng = np.random.default_rng(0)
    signs = rng.choice([-1, 1], size=(9, 50))
    masters = [0, 0, 2, 0, 2, 5, 8, 8, 8]
    groups = {master: [n for n in range(9) if masters[n] == master] for master in set(masters)}
    by_hand = np.zeros(50)
    for master, group in groups.items():
        total = signs[group].sum(axis=0)
        by_hand += len(group) * np.where(total == 0, signs[master], np.sign(total))
    for chunks in ([range(9)], [range(4), range(4, 9)], [[n] for n in range(9)]):
        assert np.array_equal(group_voted(signs, masters, chunks=chunks), np.sign(by_hand))


def test_what_a_device_did_not_send_is_no_vote_in_its_group():
    masks = [[True, False], [True, True], [True, True]]
    assert group_voted([[1, 0], [1, -1], [-1, -1]], [0, 0, 2], masks=masks).tolist() == [1.0, -1.0]


def test_groups_of_one_are_hier_sign_to_the_bit(tmp_path):
    alone = {"topology__d2d__max_distance_m": 0.0}
    ends = []
    for name, changes in (("hier-sign", {}), ("d2d-sign", alone)):
        scenario = tiny_scenario(method=name, rounds__edge_rounds=3, **changes)
        records = list(ap.run(scenario, out=tmp_path / name, dataset=blobs()))
        ends.append((records[-1]["time_s"], load_file(tmp_path / name / "final.safetensors")))
    (time_s, theirs), (our_time_s, ours) = ends
    assert our_time_s == time_s and all(np.array_equal(ours[key], array) for key, array in theirs.items())


def test_masters_send_one_bit_per_weight_to_the_edge_and_members_to_them():
    near = {"topology__d2d__max_distance_m": 1_000.0, "topology__d2d__power_dbm": 60.0, "rounds__global_rounds": 1}
    both = {}
    for name in ("d2d-sign", "d2d-fedavg"):
        scenario = tiny_scenario(method=name, rounds__edge_rounds=1, **near)
        *_, both[name] = ap.run(scenario, dataset=blobs())
    weights = 16 * 64
    assert both["d2d-sign"]["uploaded_bits"] == 2 * weights  # two edges, a group at each
    assert both["d2d-sign"]["d2d_bits"] == 4 * weights
    for kind in ("uploaded_bits", "d2d_bits"):
        assert both["d2d-fedavg"][kind] == 64 * both["d2d-sign"][kind]


@pytest.mark.parametrize("code", ["sign", "top-k"])
def test_codes_that_cannot_be_added_up_need_a_vote_in_groups(code):
    changes = {"aggregation__edge": "vote", "compression__name": code}
    with pytest.raises(InvalidValue, match="must leave values as they are with topology 'd2d'"):
        Experiment.of(tiny_scenario(method="d2d-sign", **changes), dataset=blobs())
