"""Replies within a budget, and rounds of a method at one server; without Flower."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.errors import InvalidValue, UsageError
from airprune.flower.budget import Budget, FlatArrays, batches_within, decode, encode
from airprune.flower.one_server import (
    OneServer,
    Reply,
    check_at_one_server,
    check_method_at_one_server,
    scenario_of,
    working_methods,
)


def model(seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    return {
        "conv.weight": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "fc.weight": rng.normal(size=(5, 16)).astype(np.float32),
        "fc.bias": rng.normal(size=5).astype(np.float32),
        "norm.running_var": rng.random(size=4).astype(np.float32),
        "norm.num_batches_tracked": np.array(3 + seed),
    }


WEIGHTS, REST_BYTES = 4 * 27 + 5 * 16, 4 * (5 + 4) + 8


def replied(received: dict, trained: dict, budget: Budget) -> tuple[bytes, dict]:
    payload = encode(received, trained, budget, np.random.default_rng(1))
    return payload, decode(received, payload, budget)[0]


def test_a_budget_without_limits_sends_every_array_bit_for_bit():
    received, trained = model(), model(1)
    payload, got = replied(received, trained, Budget())
    assert len(payload) == 4 * WEIGHTS + REST_BYTES
    for name, array in trained.items():
        assert got[name].dtype == array.dtype and np.array_equal(got[name], array), name


@pytest.mark.parametrize("bits", [1, 2, 8, 16])
def test_a_reply_takes_its_bits_for_each_kept_weight_a_scale_per_tensor_and_the_rest(bits):
    payload, _ = replied(model(), model(1), Budget(kept_share=0.5, bits=bits))
    kept = round(0.5 * WEIGHTS)
    assert len(payload) == math.ceil(kept * bits / 8) + 8 * 2 + REST_BYTES


def test_the_largest_received_weights_are_sent_and_the_others_stay_as_received():
    received, trained = model(), model(1)
    _, got = replied(received, trained, Budget(kept_share=0.3))
    sizes = np.sort(np.concatenate([np.abs(received[name]).ravel() for name in ("conv.weight", "fc.weight")]))[::-1]
    smallest = sizes[round(0.3 * WEIGHTS) - 1]
    for name in ("conv.weight", "fc.weight"):
        sent = got[name] == trained[name]
        assert np.array_equal(got[name][~sent], received[name][~sent])
        largest_of_rows = np.abs(received[name]) >= np.abs(received[name]).reshape(len(sent), -1).max(axis=1).reshape(
            -1, *[1] * (sent.ndim - 1)
        )
        assert np.array_equal(sent | largest_of_rows, (np.abs(received[name]) >= smallest) | largest_of_rows)
    assert np.array_equal(got["fc.bias"], trained["fc.bias"])


def test_quantised_updates_are_within_one_level_and_unbiased():
    received, trained = model(), model(1)
    budget = Budget(bits=4)  # seven levels of each sign
    step = max(float(np.abs(trained["fc.weight"] - received["fc.weight"]).max()) / 7, 1e-9)
    found = []
    for seed in range(400):
        payload = encode(received, trained, budget, np.random.default_rng(seed))
        found.append(decode(received, payload, budget)[0]["fc.weight"])
    assert np.abs(np.array(found) - trained["fc.weight"]).max() <= step * 1.001
    # A standard error of the mean is at most step / 2 / √400; five of them.
    assert np.abs(np.mean(found, axis=0) - trained["fc.weight"]).max() < 5 * step / 2 / 20


def test_a_model_of_vectors_alone_is_pruned_and_quantised_too():
    received, trained = {"w": np.arange(1.0, 9.0)}, {"w": np.arange(1.0, 9.0) + 0.5}
    payload, got = replied(received, trained, Budget(kept_share=0.25))
    assert len(payload) == 2 * 8 and got["w"].tolist() == [1, 2, 3, 4, 5, 6, 7.5, 8.5]


def test_both_ends_know_the_mask_so_it_is_not_sent():
    received = model()
    flat = FlatArrays.of(received)
    mask = flat.mask(flat.flat(received), 0.4)
    payload = encode(received, model(1), Budget(kept_share=0.4), np.random.default_rng(0))
    assert np.count_nonzero(mask) == round(0.4 * WEIGHTS) and len(payload) == 4 * round(0.4 * WEIGHTS) + REST_BYTES
    assert np.array_equal(decode(received, payload, Budget(kept_share=0.4))[1], mask)


def test_a_vector_of_all_arrays_gives_them_back():
    received = model()
    flat = FlatArrays.of(received)
    back = flat.arrays(flat.flat(received), received)
    assert back.keys() == received.keys() - {"norm.num_batches_tracked"}
    assert all(np.array_equal(back[name], received[name]) for name in back)


@pytest.mark.parametrize(("values", "words"), [({"kept_share": 0.0}, "kept_share"), ({"bits": 0}, "airprune.bits")])
def test_an_impossible_budget_is_refused(values, words):
    with pytest.raises(InvalidValue, match=words):
        Budget.of(values)


def test_a_record_of_a_grid_gives_the_budget_and_back():
    record = {"kept_share": 0.5, "bits": 8, "steps": -1, "deadline_s": 0.1, "device": 3, "of_others": "x"}
    budget = Budget.of(record)
    assert (budget.kept_share, budget.bits, budget.device, budget.coded) == (0.5, 8, 3, False)
    assert Budget.of(budget.record) == budget


def test_batches_end_with_the_steps():
    epochs = itertools.chain.from_iterable(range(3) for _ in range(4))
    assert list(batches_within(epochs, {"max-steps": 5})) == [0, 1, 2, 0, 1]
    assert list(batches_within(range(3), {})) == [0, 1, 2]
    assert list(batches_within(range(3), {"max-steps": 0})) == []


def server(method: str, num_devices: int = 4, **values) -> OneServer:
    return OneServer(
        scenario_of(method, None, {key.replace("__", "."): v for key, v in values.items()}, num_devices), model()
    )


@pytest.mark.parametrize("method", working_methods())
def test_planned_bits_are_those_of_the_encoded_reply(method):
    one = server(method)
    planned = one.plan(0, range(4))
    bits = dict(zip(planned.device.tolist(), planned.bits.tolist(), strict=True))
    budgets = one.budgets(0, range(4))
    assert budgets
    for device, budget in budgets.items():
        payload = encode(one.model, model(1), budget, np.random.default_rng(device))
        assert 0 <= 8 * len(payload) - bits[device] < 8, device  # whole bytes


def test_a_tight_deadline_lets_devices_send_fewer_weights_within_it():
    easy = server("magnitude-rechosen", plan__deadline_s=10.0)
    assert {budget.kept_share for budget in easy.budgets(0, range(4)).values()} == {1.0}
    whole_s = 32 * WEIGHTS / easy.plan(0, range(4)).full_band_rate_bps
    tight = server("magnitude-rechosen", plan__deadline_s=float(2.0 * whole_s.max()), plan__cycles_per_weight=1e-6)
    planned = tight.plan(0, range(4))
    upload_s = planned.bits / (planned.share * planned.full_band_rate_bps)
    assert planned.keep.max() < WEIGHTS and np.all(upload_s <= planned.deadline_s * (1 + 1e-9))


def test_only_devices_that_are_present_are_planned():
    assert set(server("fedavg").budgets(0, [1, 3])) == {1, 3}


def test_a_channel_with_state_keeps_it_from_round_to_round():
    values = {"radio__channel": "gauss-markov", "radio__fading": "rayleigh"}
    one, again = server("fedavg", **values), server("fedavg", **values)
    rates = [one.plan(number, range(4)).full_band_rate_bps for number in range(3)]
    assert not np.array_equal(rates[0], rates[1]) and not np.array_equal(rates[1], rates[2])
    for number in range(3):
        assert np.array_equal(again.plan(number, range(4)).full_band_rate_bps, rates[number])
    assert not np.array_equal(server("fedavg", **values).plan(2, range(4)).full_band_rate_bps, rates[2])


def test_the_page_names_every_method_that_works():
    page = (Path(__file__).parents[2] / "docs/coming-from-flower.md").read_text()
    listed = page.partition("These work: ")[2].partition(". With ")[0]
    assert re.findall("`([a-z0-9-]+)`", listed.replace("`proximal-mu`", "")) == working_methods()


def masked(seed: int, kept_share: float) -> Reply:
    received, budget = model(), Budget(kept_share=kept_share)
    payload = encode(received, model(seed), budget, np.random.default_rng(0))
    arrays, mask = decode(received, payload, budget)
    return Reply(device=seed, arrays=arrays, mask=mask, num_samples=10.0 * seed)


def test_a_weight_is_the_mean_of_those_that_sent_it_by_their_samples():
    one = server("magnitude-rechosen")
    shares = {1: 1.0, 2: 0.5, 3: 0.25}
    replies = [masked(seed, share) for seed, share in shares.items()]
    got = one.average(model(), replies)
    flat = FlatArrays.of(model())
    for name in ("conv.weight", "fc.weight"):
        total = weight = 0.0
        for seed, share in shares.items():
            vector = np.zeros(flat.layout.num_state)
            mask = flat.mask(flat.flat(model()), share)
            vector[flat.layout.prunable] = 1.0 if mask is None else mask
            sent = next(part.view(vector) for part in flat.layout.parts if part.name == name)
            total, weight = total + 10.0 * seed * sent * model(seed)[name], weight + 10.0 * seed * sent
        np.testing.assert_allclose(got[name], total / weight, rtol=1e-6)
    bias = sum(seed * model(seed)["fc.bias"] for seed in shares) / 6
    np.testing.assert_allclose(got["fc.bias"], bias, rtol=1e-6)
    assert got["norm.num_batches_tracked"] == round((1 * 4 + 2 * 5 + 3 * 6) / 6)


def test_a_weight_that_no_device_sent_keeps_its_value():
    one = server("magnitude-rechosen")
    got = one.average(model(), [masked(seed, 0.2) for seed in (1, 2)])
    reply = masked(1, 0.2)
    for name in ("conv.weight", "fc.weight"):
        kept = reply.arrays[name] == model()[name]
        assert kept.any() and np.array_equal(got[name][kept], model()[name][kept])


def test_adam_moves_the_server_as_its_source_writes_it_and_leaves_running_variances():
    one = server("fedadam")
    before, rate, tau = model(), 0.03, 1e-3
    first, second = np.zeros(5), np.full(5, tau**2)
    expected = before["fc.bias"].astype(np.float64)
    now = before
    for seed in (1, 2):
        change = model(seed)["fc.bias"] - expected
        first, second = 0.9 * first + 0.1 * change, 0.99 * second + 0.01 * change**2
        expected = expected + rate * first / (np.sqrt(second) + tau)
        now = one.average(now, [Reply(device=0, arrays=model(seed), mask=None, num_samples=5.0)])
    np.testing.assert_allclose(now["fc.bias"], expected, rtol=1e-5)  # models travel in float32
    assert np.array_equal(now["norm.running_var"], model(2)["norm.running_var"])


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("scaffold", "scaffold.own"),
        ("fedbuff", "topology 'buffered'"),
        ("hfel", "association"),
        ("oort", "selection"),
        ("fednova", "averages"),
        ("adaptive-pruning", "masking.name"),
        ("fewer-steps", "train.local_epochs"),
        ("hier-qsgd", "edges"),
        ("fixed-4", "quantised.error"),
    ],
)
def test_a_method_that_needs_more_than_a_server_is_refused_with_those_that_work(method, words):
    with pytest.raises(UsageError, match=words) as refused:
        check_method_at_one_server(method, {})
    assert "these work: " in str(refused.value) and "fedavg" in str(refused.value)


def test_the_papers_bandwidth_works_with_masks_that_both_ends_know():
    check_method_at_one_server("adaptive-pruning", {"masking.name": "magnitude-rechosen"})


def test_an_unknown_method_lists_the_nearest():
    with pytest.raises(UsageError, match="fedavg"):
        check_method_at_one_server("fedavgg", {})


def test_a_network_of_several_edges_is_refused_with_a_way_out():
    with pytest.raises(InvalidValue, match="flat"):
        check_at_one_server(ap.Scenario().with_values({"method": "hierfavg"}))
