"""Who is asked and who is dropped."""

from __future__ import annotations

import numpy as np
import pytest

import airprune as ap
from airprune.methods.selection import SELECTIONS
from airprune.methods.selection.base import Candidates, known_rates
from airprune.planning import PlanProblem
from support.tiny import blobs, tiny_scenario


def candidates(rate, edge=None, seed=0):
    count = len(rate)
    return Candidates(
        device=np.arange(count),
        edge=np.zeros(count, dtype=np.int64) if edge is None else np.asarray(edge),
        rates_bps=known_rates(np.arange(count), np.asarray(rate, dtype=np.float64)),
        num_samples=np.ones(count),
        round_index=0,
        rng=np.random.default_rng(seed),
    )


def selected(name, found, **options):
    return SELECTIONS[name](**options).before(found)


@pytest.mark.parametrize(("share", "expected"), [(0.1, [1, 1]), (0.34, [2, 2]), (0.5, [2, 3]), (1.0, [4, 5])])
def test_a_share_is_rounded_up_on_every_edge(share, expected):
    edge = [0] * 4 + [7] * 5
    for name in ("random-share", "best-channel"):
        chosen = selected(name, candidates(np.arange(9) + 1.0, edge), share=share)
        assert [int(chosen[np.array(edge) == k].sum()) for k in (0, 7)] == expected


def test_best_channel_takes_the_highest_rates_and_the_lower_number_of_equals():
    chosen = selected("best-channel", candidates([3.0, 9.0, 9.0, 9.0, 1.0]), share=0.4)
    assert np.flatnonzero(chosen).tolist() == [1, 2]


def test_every_device_is_asked_about_equally_often_at_random():
    counts = sum(selected("random-share", candidates([1.0] * 10, seed=seed), share=0.3) for seed in range(2_000))
    assert counts.sum() == 2_000 * 3
    assert np.abs(counts - 600).max() < 5 * np.sqrt(2_000 * 0.3 * 0.7)  # five standard deviations


def let_go(rate, deadline_s, max_ratio=0.8):
    """The devices that stay when the one to go is left out again and again, and their ratios."""
    selection, stays = SELECTIONS["ratio-cap"](max_ratio=max_ratio), np.arange(len(rate))
    while True:
        problem = PlanProblem(
            full_band_rate_bps=np.asarray(rate)[stays],
            seconds_per_weight=40 / 3e9,
            deadline_s=deadline_s,
            max_pruning_ratio=0.95,
        )
        plan = ap.plan(problem)
        kept = selection.after(candidates(np.asarray(rate)[stays]), plan)
        if kept.all():
            return stays.tolist(), plan.pruning_ratio
        stays = stays[kept]


def test_ratio_cap_lets_go_who_blocks_and_then_who_is_pruned_too_much():
    rate = np.array([320e6, 300e6, 240e6, 150e6])
    three = PlanProblem(
        full_band_rate_bps=rate[:3], seconds_per_weight=40 / 3e9, deadline_s=0.020, max_pruning_ratio=0.95
    )
    assert ap.plan(three).pruning_ratio == pytest.approx([0, 0.7262427045, 0.95], abs=1e-9)
    stays, ratio = let_go(rate, 0.020)
    assert stays == [0, 1]
    assert ratio.tolist() == [0.0, 0.0]


def test_ratio_cap_of_one_lets_nobody_go():
    assert let_go([320e6, 300e6, 240e6], 0.020, max_ratio=1.0)[0] == [0, 1, 2]


def records(**changes):
    return list(ap.run(tiny_scenario(**changes), dataset=blobs()))


def test_asked_devices_share_the_whole_band_and_the_others_cost_nothing():
    changes = {"plan__deadline_s": 0.0003, "selection__name": "random-share", "selection__random-share__share": 0.3}
    for record in records(**changes):
        if record["kind"] == "edge":
            assert record["asked"] == len(record["device"]) == 2  # one of three on each of two edges
            assert len(record["device_energy_j"]) == 2
            assert record["mean_pruning_ratio"] == 0.0  # alone on its band, a device need not prune
    assert next(ap.run(tiny_scenario(plan__deadline_s=0.0003), dataset=blobs()))["mean_pruning_ratio"] > 0.5


def test_the_band_is_shared_by_those_who_are_asked_and_by_nobody_else():
    share = {"selection__name": "random-share", "selection__random-share__share": 0.6}
    record = records(plan__deadline_s=0.0002, **share)[0]
    shares = np.array(record["bandwidth_share"])
    for edge in (0, 1):
        assert shares[np.array(record["edge"]) == edge].sum() == pytest.approx(1.0, abs=1e-9)


def test_asking_a_tenth_of_a_thousand_devices_is_one_setting():
    changes = {
        "network__num_edges": 10,
        "network__devices_per_edge": 100,
        "rounds__global_rounds": 1,
        "rounds__edge_rounds": 1,
        "selection__name": "random-share",
    }
    first = next(ap.run(tiny_scenario(**changes), dataset=blobs(num_train=2_000)))
    assert first["asked"] == 100
    assert np.bincount(first["edge"]).tolist() == [10] * 10


def test_other_devices_are_asked_in_other_rounds_and_the_same_for_every_scheme():
    changes = {"selection__name": "random-share", "rounds__edge_rounds": 6}
    by_scheme = [
        [record["device"] for record in records(plan__scheme=scheme, **changes) if record["kind"] == "edge"]
        for scheme in ("optimal", "no-pruning")
    ]
    assert by_scheme[0] == by_scheme[1]
    assert len({tuple(devices) for devices in by_scheme[0]}) > 3
