"""Knobs from the deadline: with equal shares each device sends with the largest k or s that its budget carries."""

import dataclasses
import math

import numpy as np
import pytest
from safetensors.numpy import load_file

import airprune as ap
from airprune.errors import Infeasible
from airprune.methods.compression import COMPRESSIONS, Wire, compress
from airprune.methods.compression.random_k import sampled_places
from airprune.planning import Codes, Status
from support.tiny import blobs, tiny_scenario

W = 43_888
PAPER = Wire(value_bits=64, num_weights=W, num_tensors=4)
RATES = (300e6, 240e6, 200e6)
SECONDS_PER_WEIGHT = 40 / 3e9


def codes_of(name: str, wire: Wire = PAPER, **options) -> Codes:
    compression = COMPRESSIONS[name](**options)
    return Codes(
        numbers=compression.codes(wire),
        bits=lambda code, weights: compression.message_bits(dataclasses.replace(wire, code=code), weights),
    )


def three_devices(codes: Codes, **changes) -> ap.Plan:
    values = {"bits_per_weight": codes.bits(codes.numbers[0], W) / W, "deadline_s": 0.030, **changes}
    problem = ap.PlanProblem(full_band_rate_bps=RATES, seconds_per_weight=SECONDS_PER_WEIGHT, codes=codes, **values)
    return ap.plan(problem, "equal-codes")


def budgets(deadline_s: float, fixed_bits: float = 0.0) -> list[float]:
    """b r (T_th − a W) − e, written out once more."""
    return [rate / 3 * (deadline_s - SECONDS_PER_WEIGHT * W) - fixed_bits for rate in RATES]


def test_the_deadline_decides_k_on_three_devices():
    plan = three_devices(codes_of("top-k", share=1.0))
    assert plan.code.tolist() == [W, 29_414, 24_512]  # the first has time for the whole update
    assert plan.status.tolist() == ["ok"] and np.all(plan.pruning_ratio == 0.0)
    one_more_s = (64 + 16) / (np.array(RATES) / 3)
    assert np.all(plan.latency_s <= 0.030) and np.all((plan.latency_s + one_more_s)[1:] > 0.030)


def test_places_drawn_from_a_seed_leave_room_for_more_entries():
    plan = three_devices(codes_of("random-k", share=1.0))
    assert plan.code.tolist() == [min(W, math.floor((bits - 64) / 64)) for bits in budgets(0.030)]


@pytest.mark.parametrize("deadline_s", [0.0025, 0.004, 0.0075])
def test_the_deadline_decides_the_levels_of_a_quantiser(deadline_s):
    plan = three_devices(codes_of("quantised", bits=16), deadline_s=deadline_s, fixed_bits=100.0)
    for code, budget in zip(plan.code.tolist(), budgets(deadline_s, 100.0), strict=True):
        fitting = [s for s in range(1, 2**15) if W * (1 + math.ceil(math.log2(s + 1))) + 64 * 4 <= budget]
        assert 2 ** (code - 1) - 1 == fitting[-1]
    assert np.all(plan.latency_s <= deadline_s)


def test_options_are_the_most_that_is_sent():
    assert np.all(three_devices(codes_of("top-k", count=500)).code == 500)
    assert np.all(three_devices(codes_of("quantised", levels=4)).code == 4)  # 1 + ⌈log2 5⌉ bits
    quantised = COMPRESSIONS["quantised"](levels=4)
    assert quantised.message_bits(dataclasses.replace(PAPER, code=4), W) == 4 * W + 256


def test_who_cannot_send_the_smallest_code_blocks_its_edge_and_the_way_out_works():
    codes = codes_of("quantised", bits=16)
    plan = three_devices(codes, deadline_s=0.00165)
    assert plan.status.tolist() == [Status.INFEASIBLE_BANDWIDTH] and plan.blocking_devices.tolist() == [
        False,
        True,
        True,
    ]
    with pytest.raises(Infeasible, match="the smallest deadline that works is"):
        plan.raise_if_failed()
    least_s = float(plan.min_deadline_s[0])
    assert three_devices(codes, deadline_s=least_s * (1 + 1e-12)).code.min() == 2
    assert three_devices(codes, deadline_s=least_s * (1 - 1e-9)).failed.all()
    assert three_devices(codes, deadline_s=5e-4).status.tolist() == [Status.INFEASIBLE_COMPUTE]


def test_without_codes_the_ratios_meet_the_deadline():
    problem = ap.PlanProblem(full_band_rate_bps=RATES, seconds_per_weight=SECONDS_PER_WEIGHT)
    plan, pruned = ap.plan(problem, "equal-codes"), ap.plan(problem, "equal-resolved")
    assert np.array_equal(plan.pruning_ratio, pruned.pruning_ratio) and plan.code is None


def run(tmp_path, **changes) -> list[dict]:
    return list(ap.run(tiny_scenario(**changes), out=tmp_path, dataset=blobs()))


@pytest.mark.parametrize("method", ["topk", "randk", "mem-sgd", "qsgd"])
def test_methods_that_send_less_fill_the_deadline_and_keep_it(method, tmp_path):
    """An MLP of 1,024 weights: 170 µs are a few hundred entries, or a few bits of each."""
    deadline_s = 1.7e-4
    edges = [
        row
        for row in run(tmp_path, method=method, plan__deadline_s=deadline_s, rounds__global_rounds=1)
        if row["kind"] == "edge"
    ]
    took = np.array([np.add(row["compute_s"], row["uplink_s"]) for row in edges])
    bits = np.array([row["bits_per_weight"] for row in edges])
    assert np.all(took <= deadline_s * (1 + 1e-9)) and np.all(took > 0.7 * deadline_s)
    assert np.all(np.array([row["pruning_ratio"] for row in edges]) == 0.0) and np.ptp(bits) > 0


def test_with_time_for_every_entry_top_k_is_hierarchical_averaging_to_the_bit(tmp_path):
    sparse = {"plan__scheme": "equal-codes", "compression__name": "top-k", "compression__top-k__share": 1.0}
    run(tmp_path / "plain", method="hierfavg", rounds__global_rounds=1)
    run(tmp_path / "sparse", method="hierfavg", rounds__global_rounds=1, **sparse)
    plain, sparse = (load_file(tmp_path / name / "final.safetensors") for name in ("plain", "sparse"))
    assert all(np.array_equal(plain[name], sparse[name]) for name in plain)


def test_random_entries_are_right_on_average_and_as_they_are_with_a_memory():
    x = np.array([3.0, -1.0, 0.5, 2.0])
    seeds = range(600)
    decoded = np.array([compress(x, "random-k", count=2, rng=seed)[0] for seed in seeds])
    assert set(np.round(np.unique(np.abs(decoded)), 9)) == {0.0, 1.0, 2.0, 4.0, 6.0}  # times n / k = 2
    np.testing.assert_allclose(decoded.mean(axis=0), x, atol=4 * 3.0 / math.sqrt(len(seeds)))  # 4 standard errors
    sent, bits, left = compress(x, "random-k", count=2, rng=1, memory=np.zeros(4))
    assert bits == 2 * 64 + 64 and np.count_nonzero(sent) == 2
    assert np.array_equal(sent + left, x)


def test_every_place_is_drawn_equally_often():
    counts = np.zeros(10)
    for seed in range(800):
        counts[sampled_places(seed, 10, 3)] += 1
    assert abs(counts / 800 - 0.3).max() < 5 * math.sqrt(0.3 * 0.7 / 800)  # 5 standard deviations
