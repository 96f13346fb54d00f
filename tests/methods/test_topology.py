"""Trees of any depth, their clocks, and devices that move between edges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import airprune as ap
from airprune.errors import InvalidValue
from airprune.methods.topology import TOPOLOGIES, Tree
from support.tiny import blobs, last_state, tiny_scenario


def tree_of(edge_rounds, **options) -> Tree:
    return TOPOLOGIES["tree"](**options).build(np.array(edge_rounds))


def test_edges_are_partitioned_among_the_level_above_evenly_and_in_order():
    tree = tree_of([1] * 5, nodes=(2,), rounds=(3,))
    assert tree.levels[0].parent.tolist() == [0, 0]
    assert tree.levels[1].parent.tolist() == [0, 0, 0, 1, 1]
    assert tree.num_nodes == 8
    assert tree.samples_below(0, np.array([1, 2, 3, 4, 5])).tolist() == [6, 9]


def test_a_node_is_active_while_it_and_all_above_it_have_rounds_left():
    tree = tree_of([1, 3], nodes=(2,), rounds=(2,))
    assert tree.active(1, [0, 0]).tolist() == [True, True]
    assert tree.active(1, [0, 1]).tolist() == [False, True]
    assert tree.active(1, [2, 0]).tolist() == [False, False]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"nodes": (9,), "rounds": (1,)}, "no more nodes"),
        ({"nodes": (2,), "rounds": (1, 1)}, "one entry for each"),
        ({"nodes": (2,), "rounds": (1,), "rate_bps": (1e9,)}, "must be empty or have 2"),
    ],
)
def test_a_tree_that_cannot_be_is_refused_in_one_sentence(options, rule):
    with pytest.raises(InvalidValue, match=rule):
        tree_of([1, 1, 1], **options)


def run(**changes):
    return list(ap.run(tiny_scenario(**changes), dataset=blobs()))


def final(tmp_path, name, **changes):
    out = tmp_path / name
    for _ in ap.run(tiny_scenario(**changes), dataset=blobs(), out=out):
        pass
    from safetensors.numpy import load_file

    return load_file(out / "final.safetensors")


def same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_a_level_of_one_child_each_changes_nothing_to_the_bit(tmp_path):
    plain = final(tmp_path, "plain")
    tall = {"topology__name": "tree", "topology__tree__nodes": [2], "topology__tree__rounds": [1]}
    assert same(plain, final(tmp_path, "tall", **tall))
    taller = {"topology__name": "tree", "topology__tree__nodes": [2, 2], "topology__tree__rounds": [1, 1]}
    assert same(plain, final(tmp_path, "taller", **taller))


def test_three_levels_with_one_round_each_and_averages_by_data_are_flat_averaging(tmp_path):
    by_data = {"aggregation__edge": "data-weighted", "aggregation__cloud": "data-weighted", "rounds__edge_rounds": 1}
    tall = {"topology__name": "tree", "topology__tree__nodes": [2], "topology__tree__rounds": [1]}
    changes = {**by_data, "network__num_edges": 3, "model__float64": True}
    one, other = final(tmp_path, "tall", **changes, **tall), final(tmp_path, "two", **changes)
    for name in one:
        assert one[name] == pytest.approx(other[name], abs=1e-12)


def test_a_level_of_more_rounds_averages_its_edges_more_often():
    tall = {"topology__name": "tree", "topology__tree__nodes": [1], "topology__tree__rounds": [3]}
    records = run(**tall, rounds__global_rounds=1)
    kinds = [record["kind"] for record in records]
    assert kinds == ["edge", "edge", "node"] * 3 + ["global"]
    assert [record["node_round"] for record in records if record["kind"] == "node"] == [1, 2, 3]


def test_the_clock_of_a_tree_adds_rounds_and_links_of_the_slowest_child():
    rates = {"topology__tree__rate_bps": [2e6, 1e6]}
    tall = {"topology__name": "tree", "topology__tree__nodes": [2], "topology__tree__rounds": [2], **rates}
    records = run(**tall, rounds__global_rounds=1, plan__deadline_s=0.0003)
    bits = 64 * (12 * 64 + 64 * 4)  # of the whole model
    edge_rounds = [record["edge_latency_s"] for record in records if record["kind"] == "edge"]
    node = [record["latency_s"] for record in records if record["kind"] == "node"]
    for half in (0, 1):  # each region has one edge with two rounds, then its link
        for region in (0, 1):
            rounds_s = edge_rounds[2 * half][region] + edge_rounds[2 * half + 1][region]
            assert node[half][region] == pytest.approx(rounds_s + bits / 1e6, rel=1e-12)
    slowest = max(node[0][region] + node[1][region] for region in (0, 1)) + bits / 2e6
    assert records[-1]["latency_s"] == pytest.approx(slowest, rel=1e-12)


def test_a_backhaul_takes_time_and_changes_no_model(tmp_path):
    plain, slow = run(), run(topology__hierarchical__backhaul_bps=1e6)
    assert slow[-1]["time_s"] - plain[-1]["time_s"] == pytest.approx(2 * 64 * 1024 / 1e6, rel=1e-9)
    assert slow[-1]["test_loss"] == plain[-1]["test_loss"]


def test_devices_that_never_move_are_where_the_network_has_them(tmp_path):
    stay = {"association__name": "handover", "association__handover__probability": 0.0}
    assert same(final(tmp_path, "fixed"), final(tmp_path, "stay", **stay))


def edges_of(records):
    return [dict(zip(r["device"], r["edge"], strict=True)) for r in records if r["kind"] == "edge"]


def test_devices_that_move_are_served_by_their_new_edge_from_then_on():
    often = {"association__name": "handover", "association__handover__probability": 0.5}
    edges = edges_of(run(**often, network__num_edges=3, rounds__edge_rounds=4))
    moves = [sum(a[n] != b[n] for n in a) for a, b in itertools.pairwise(edges)]
    assert 0 < sum(moves) < 9 * len(moves)


def test_who_moves_loses_the_round_if_updates_are_lost():
    always = {"association__name": "handover", "association__handover__probability": 1.0}
    record = run(**always, association__handover__update="lost")[0]
    assert record["left_out"]["dropped"] == len(record["device"]) == 6
    carried = run(**always)[0]
    assert carried["left_out"]["dropped"] == 0


def moved(probability, **changes):
    """(the cloud's model after one round of each edge, who served whom)."""
    once = {"rounds__edge_rounds": 1, "rounds__global_rounds": 1, "model__float64": True, "data__size_spread": 0.5}
    handover = {"method": "mobility", "association__handover__probability": probability}
    state, records, _ = last_state(tiny_scenario(**once, **handover, **changes))
    return state.global_state, records[0]["edge"]


def test_mobility_without_moves_is_hierfavg():
    stay = {"method": "mobility", "association__handover__probability": 0.0}
    models = [last_state(tiny_scenario(**changes))[0].models for changes in (stay, {"method": "hierfavg"})]
    assert np.array_equal(*models)


def test_carried_updates_change_a_mean_of_means_by_the_sizes_of_edges_and_a_mean_by_samples_not_at_all():
    of_means = {"aggregation__edge": "masked-mean", "aggregation__cloud": "masked-mean"}
    by_samples, by_means = moved(0.0)[0], moved(0.0, **of_means)[0]
    for probability, sizes in ((0.5, [3, 3]), (0.7, [5, 1])):  # with this seed: one device goes each way; three and one
        model, edge = moved(probability)
        assert np.bincount(edge).tolist() == sizes and edge != [0, 0, 0, 1, 1, 1]
        assert model == pytest.approx(by_samples, rel=1e-12, abs=1e-14)  # float64, added in another order
        same_sizes = np.allclose(moved(probability, **of_means)[0], by_means, rtol=1e-12, atol=1e-14)
        assert same_sizes == (sizes == [3, 3])


def test_nearest_and_best_rate_serve_devices_of_this_map_as_the_network_does(tmp_path):
    plain = final(tmp_path, "fixed")  # edges 1.4 km apart, devices within 152 m of theirs
    for name in ("nearest", "best-rate"):
        assert same(plain, final(tmp_path, name, association__name=name))
