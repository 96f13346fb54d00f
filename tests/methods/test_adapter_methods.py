"""Methods for adapters, each against the equations of its source written out by hand in numpy."""

import numpy as np
import pytest
import torch
from torch import nn

import airprune as ap
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.methods.aggregation.zero_padded import ZeroPadded
from airprune.models.adapters import Lora, add_adapters
from airprune.runs.adapter_bias import product_bias

RANK, INPUTS, OUTPUTS, SCALE, RATE = 4, 6, 3, 2.0, 0.05


def adapted() -> nn.Module:
    """One adapter whose B is not zero, so that A has a gradient from the start."""
    torch.manual_seed(3)
    module = nn.Sequential(Lora(nn.Linear(INPUTS, OUTPUTS), RANK, SCALE))
    nn.init.normal_(module[0].lora_B.weight)
    return module


def samples():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, INPUTS)).astype(np.float32)
    return x, (x @ rng.normal(size=(INPUTS, OUTPUTS))).astype(np.float32)


def traced(method: str, global_round: int = 1, **changes) -> ap.RoundTrace:
    values = {
        "seed": 5,
        "method": method,
        "model.float64": True,
        "network.num_edges": 2,
        "network.devices_per_edge": 3,
        "network.outer_m": 900.0,
        "data.size_spread": 0.6,
        "train.loss": "mse",
        "train.learning_rate": RATE,
        "train.batch_size": 5,
        "train.local_epochs": 2,
        "rounds.global_rounds": 2,
        "rounds.edge_rounds": 1,
        "plan.deadline_s": 1.0,
        "plan.bits_per_weight": 64.0,
        "engine.name": "serial",
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    scenario = ap.Scenario().with_values(values)
    if scenario.compression.name == "cast":  # as the equations have it
        scenario = scenario.with_("compression.cast.format", "exact")
    return ap.trace_round(scenario, global_round, model=adapted(), dataset=samples())


def by_hand(trace: ap.RoundTrace, row: int, *, trains: str = "AB", rank: int = RANK) -> tuple[np.ndarray, np.ndarray]:
    """A and B of a device after its minibatches, from y = W x + c + s B A x and the mean square error."""
    start = trace.named(trace.received(row))
    first, second = start["0.lora_A.weight"].copy(), start["0.lora_B.weight"].copy()
    first[rank:], second[:, rank:] = 0.0, 0.0
    for batch in trace.minibatches_of(row):
        x, y = trace.samples(batch)
        error = x @ start["0.base.weight"].T + start["0.base.bias"] + SCALE * x @ first.T @ second.T - y
        outer = 2.0 * error / error.size
        step_first = SCALE * second.T @ outer.T @ x
        step_second = SCALE * outer.T @ (x @ first.T)
        if "A" in trains:
            first[:rank] -= RATE * step_first[:rank]
        if "B" in trains:
            second[:, :rank] -= RATE * step_second[:, :rank]
    return first, second


def averages(trace: ap.RoundTrace, devices: list[tuple[np.ndarray, np.ndarray]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Means of A and of B by samples, edge by edge."""
    found = []
    for edge in range(2):
        rows = np.flatnonzero(trace.edge == edge)
        weight = trace.num_holding[rows] / trace.num_holding[rows].sum()
        found.append(tuple(sum(w * devices[row][half] for w, row in zip(weight, rows, strict=True)) for half in (0, 1)))
    return found


def agrees(trace: ap.RoundTrace, expected: list[tuple[np.ndarray, np.ndarray]]) -> None:
    for edge, (first, second) in enumerate(expected):
        tensors = trace.named(trace.edge_after[edge])
        np.testing.assert_allclose(tensors["0.lora_A.weight"], first, rtol=1e-6, atol=1e-8)  # samples are float32
        np.testing.assert_allclose(tensors["0.lora_B.weight"], second, rtol=1e-6, atol=1e-8)
        assert np.array_equal(tensors["0.base.weight"], trace.named(trace.cloud_before)["0.base.weight"])


def test_fedit_averages_a_and_b_apart_by_samples():
    trace = traced("fedit")
    assert len(set(trace.num_holding.tolist())) > 1
    agrees(trace, averages(trace, [by_hand(trace, row) for row in range(6)]))


def test_ffa_lora_trains_and_sends_b_alone():
    trace = traced("ffa-lora", 2)
    agrees(trace, averages(trace, [by_hand(trace, row, trains="B") for row in range(6)]))
    assert np.all(trace.kept_weights == OUTPUTS * RANK)
    assert np.all(trace.upload_bits == OUTPUTS * RANK * 64)


@pytest.mark.parametrize(("global_round", "half", "weights"), [(1, "B", OUTPUTS * RANK), (2, "A", INPUTS * RANK)])
def test_rolora_trains_b_in_odd_global_rounds_and_a_in_even_ones(global_round, half, weights):
    trace = traced("rolora", global_round)
    agrees(trace, averages(trace, [by_hand(trace, row, trains=half) for row in range(6)]))
    assert np.all(trace.upload_bits == weights * 64)


def test_hetlora_truncates_to_the_rank_of_each_device_and_pads_with_zeros():
    trace = traced("hetlora", plan__deadline_s=2.4e-5)
    rank = trace.kept_weights // (INPUTS + OUTPUTS)
    assert len(set(rank.tolist())) > 1 and np.all(rank * (INPUTS + OUTPUTS) == trace.kept_weights)
    devices = [by_hand(trace, row, rank=int(rank[row])) for row in range(6)]
    expected = averages(trace, devices)  # zeros beyond a device's rank count
    start = trace.named(trace.cloud_before)
    for edge, (first, second) in enumerate(expected):
        largest = rank[trace.edge == edge].max()  # what no device holds keeps its value
        first[largest:], second[:, largest:] = start["0.lora_A.weight"][largest:], start["0.lora_B.weight"][:, largest:]
    agrees(trace, expected)


def test_adaptive_ranks_sends_at_the_levels_and_ranks_of_its_plan():
    trace = traced("adaptive-ranks", plan__deadline_s=6e-6)
    rank = trace.kept_weights // (INPUTS + OUTPUTS)
    assert np.all(rank * (INPUTS + OUTPUTS) == trace.kept_weights)
    assert np.all(trace.upload_bits < 64 * RANK * (INPUTS + OUTPUTS))
    assert np.all(trace.compute_s + trace.uplink_s <= 6e-6 * (1 + 1e-9))


def test_zero_padding_by_hand():
    """Two children with 1 and 3 samples; the second sent the first weight alone, no child the third."""
    total = MaskedSum.zeros(3, slice(0, 3))
    total.add(np.array([4.0, 8.0, 0.0]), np.array([True, True, False]), 1.0)
    total.add(np.array([8.0, 0.0, 0.0]), np.array([True, False, False]), 3.0)
    assert ZeroPadded().finish(total, np.array([9.0, 9.0, 9.0])).tolist() == [7.0, 2.0, 9.0]


def test_the_bias_of_two_devices_by_hand():
    """A = 1, 3 and B = 2, 6: mean(B) mean(A) = 4 · 2 = 8, mean(B A) = (2 + 18) / 2 = 10."""
    first, second = np.array([[[1.0]], [[3.0]]]), np.array([[[2.0]], [[6.0]]])
    assert product_bias(first, second, np.ones(2)).tolist() == [[-2.0]]


def test_the_bias_is_that_of_the_uploads_and_halves_have_none():
    trace = traced("fedit")
    found = ap.adapter_bias(trace)
    assert [(one.edge, one.adapter) for one in found] == [(0, "0"), (1, "0")]
    rows = np.flatnonzero(trace.edge == 0)
    weight = trace.weight[rows] / trace.weight[rows].sum()
    devices = [by_hand(trace, row) for row in rows.tolist()]
    first, second = (sum(w * device[half] for w, device in zip(weight, devices, strict=True)) for half in (0, 1))
    product = sum(w * b @ a for w, (a, b) in zip(weight, devices, strict=True))
    start = trace.named(trace.received(0))
    change = np.linalg.norm(product - start["0.lora_B.weight"] @ start["0.lora_A.weight"])
    assert found[0].bias == pytest.approx(np.linalg.norm(second @ first - product), rel=1e-5)
    assert found[0].change == pytest.approx(change, rel=1e-5)
    assert found[0].share == pytest.approx(found[0].bias / found[0].change)
    for method, global_round in (("ffa-lora", 1), ("rolora", 1), ("rolora", 2)):
        exact = ap.adapter_bias(traced(method, global_round))
        assert all(one.bias < 1e-12 < one.change for one in exact)


def test_a_broadcast_carries_only_what_devices_lack():
    """Half an adapter, or the largest rank of an edge; with whole adapters all of it."""
    whole = RANK * (INPUTS + OUTPUTS) * 64.0
    changes = {"radio__downlink": "broadcast"}
    expected = {"fedit": whole, "ffa-lora": RANK * OUTPUTS * 64.0, "rolora": RANK * INPUTS * 64.0}
    for method, bits in expected.items():
        scenario = traced(method, **changes).scenario
        record = next(iter(ap.run(scenario, model=adapted(), dataset=samples())))
        assert record["downlink_bits"] == 2 * bits
    trace = traced("hetlora", plan__deadline_s=2.4e-5, **changes)
    record = next(iter(ap.run(trace.scenario, model=adapted(), dataset=samples())))
    assert record["downlink_bits"] == sum(trace.kept_weights[trace.edge == edge].max() * 64.0 for edge in range(2))


def test_methods_of_adapters_change_only_adapters():
    module = add_adapters(nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, OUTPUTS)), 2)
    frozen = {name: p.detach().clone() for name, p in module.named_parameters() if not p.requires_grad}
    scenario = traced("rolora").scenario.with_("model.float64", False)
    learned = ap.train(scenario, model=module, dataset=samples()).weights
    assert len(frozen) == 4
    assert all(np.array_equal(learned[name], value.numpy()) for name, value in frozen.items())
