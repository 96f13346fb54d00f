"""HybridFL: slack factors, the end of a round, and whose data counts."""

from __future__ import annotations

import numpy as np
import pytest

import airprune as ap
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.outcome import Outcome
from airprune.methods.selection import slack
from airprune.methods.selection.base import Candidates, known_rates
from support.tiny import blobs, last_state, tiny_scenario

SLACK = slack.Slack(share=0.3)


def after_rounds(asked, submitted):
    """The sums of one edge after rounds with so many asked and submitted."""
    memory = {slack.PRODUCT: np.zeros(1), slack.SQUARE: np.zeros(1)}
    for sent, came in zip(asked, submitted, strict=True):
        everybody = np.zeros(sent, dtype=np.int64)
        found = Candidates(
            device=np.arange(sent),
            edge=everybody,
            rates_bps=known_rates(np.arange(sent), np.ones(sent)),
            num_samples=np.ones(sent),
            round_index=0,
            rng=np.random.default_rng(0),
            memory=memory,
        )
        arrays = {"device": found.device, "edge": everybody, "num_samples": found.num_samples}
        outcome = Outcome(
            candidates=found,
            **arrays,
            arrived=found.device < came,
            latency_s=np.ones(sent),
            loss=np.ones(sent),
        )
        memory = SLACK.after_edge_round(outcome, {})
    return memory[slack.PRODUCT], memory[slack.SQUARE]


def test_the_slack_factor_is_the_least_squares_slope_of_submitted_over_asked():
    asked, submitted = np.array([10.0, 8.0, 12.0]), np.array([6.0, 6.0, 6.0])
    product, square = after_rounds([10, 8, 12], [6, 6, 6])
    slope = np.linalg.lstsq(asked[:, None], submitted, rcond=None)[0]
    assert product / square == pytest.approx(slope, rel=1e-12)
    assert product / square == pytest.approx(0.584415584, abs=1e-9)
    assert slack.sampled_shares(0.3, product, square) == pytest.approx([0.513333], abs=1e-6)


def test_edges_ask_the_share_itself_before_they_know_and_everybody_where_nobody_answers():
    product, square = np.array([0.0, 0.0, 90.0]), np.array([0.0, 100.0, 100.0])
    assert slack.sampled_shares(0.3, product, square) == pytest.approx([0.3, 1.0, 1.0 / 3.0])


def test_the_round_ends_with_the_last_upload_of_the_quota_or_never():
    arrives_s = np.array([5.0, 1.0, np.inf, 3.0, 2.0])
    assert SLACK.barrier(arrives_s, 10) == 3.0  # ⌈0.3 · 10⌉ = 3
    assert SLACK.barrier(arrives_s, 14) == np.inf  # 5 wanted, 4 come
    assert SLACK.barrier(arrives_s, 100) == np.inf


def test_devices_that_were_not_heard_count_as_what_the_edge_had():
    cached = AGGREGATIONS["cached"]()
    previous, samples = np.full(3, 5.0), np.array([1, 2, 3, 4])
    weights = cached.weights(samples)
    total = cached.Sum.zeros(3, slice(1, 3))
    for value, weight in zip((10.0, 20.0), weights[:2].tolist(), strict=True):
        total.add(np.full(3, value), None, weight)
    heard = total.all_weight / weights.sum()
    combined = cached.finish(total, previous)
    assert cached.absent(combined, previous, heard) == pytest.approx([8.5] * 3, rel=1e-12)


def hybrid(**changes):
    return tiny_scenario(
        **{
            "method": "hybridfl",
            "rounds__global_rounds": 4,
            "rounds__edge_rounds": 1,
            "network__devices_per_edge": 5,
            "events__straggler_probability": 0.5,
            **changes,
        }
    )


def both(records):
    """Pairs of an edge record and its global record."""
    return zip(records[::2], records[1::2], strict=True)


def arrived(record):
    return np.array(record["fate"]) == "ok"


def test_a_round_lasts_as_long_as_the_last_upload_of_the_quota():
    records = list(ap.run(hybrid(), dataset=blobs()))
    for edge, whole in both(records):
        latency_s = np.sort(np.array(edge["compute_s"]) + np.array(edge["uplink_s"]))
        assert edge["asked"] >= 4 and arrived(edge).sum() == 3  # at least 2 of 5 on both edges; ⌈0.3 · 10⌉
        assert whole["latency_s"] == pytest.approx(latency_s[2], rel=1e-12)
        assert edge["left_out"]["late"] == edge["asked"] - 3


def test_without_enough_uploads_a_round_lasts_until_the_deadline():
    lost = {"events__dropout_probability": 1.0, "rounds__global_rounds": 1}
    edge, whole = ap.run(hybrid(**lost), dataset=blobs())
    assert not arrived(edge).any()
    assert whole["latency_s"] == pytest.approx(1.0, rel=1e-6)  # the scenario's deadline


def test_the_cloud_weighs_edges_by_the_data_they_heard_and_edges_keep_what_they_did_not_hear():
    once = {"rounds__global_rounds": 1, "events__dropout_probability": 0.3, "data__size_spread": 0.5}
    state, (record, _), experiment = last_state(hybrid(model__float64=True, **once))
    plain, _, _ = last_state(hybrid(model__float64=True, aggregation__edge="data-weighted", **once))
    device, edge = np.array(record["device"])[arrived(record)], np.array(record["edge"])[arrived(record)]
    heard = np.bincount(edge, experiment.data_sizes[device], minlength=2)
    assert len(set(experiment.data_sizes.tolist())) > 3 and heard[0] != heard[1]
    assert state.global_state == pytest.approx(heard @ state.edge_states / heard.sum(), rel=1e-12)
    share = heard / np.bincount(experiment.network.edge, experiment.data_sizes)
    start = experiment.model.state_array
    expected = start + share[:, None] * (plain.edge_states - start)
    assert state.edge_states == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_nobody_lost_and_everybody_asked_is_hierfavg_bit_for_bit():
    calm = {"events__straggler_probability": 0.0, "data__size_spread": 0.5, "rounds__global_rounds": 2}
    ours, _, _ = last_state(hybrid(selection__slack__share=1.0, **calm))
    theirs, _, _ = last_state(hybrid(method="hierfavg", **calm))
    assert np.array_equal(ours.models, theirs.models)
    assert ours.totals == theirs.totals


@pytest.mark.parametrize("dropout", [0.3, 0.6])
def test_rounds_are_shorter_and_cheaper_than_hierfavgs_where_devices_drop_out(dropout):
    last = {}
    for method in ("hybridfl", "hierfavg"):
        changes = {"events__dropout_probability": dropout, "plan__deadline_s": 0.01, "network__devices_per_edge": 10}
        last[method] = list(ap.run(hybrid(method=method, **changes), dataset=blobs()))[-1]
    assert last["hybridfl"]["time_s"] < last["hierfavg"]["time_s"]
    assert last["hybridfl"]["energy_j"] < last["hierfavg"]["energy_j"]
