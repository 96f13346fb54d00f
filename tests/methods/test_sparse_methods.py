"""Pruning by schedules and dynamic sparse training: PruneFL, SNIP, iterative, early, FedDST, DPF, averaged scores."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from airprune.components.component import paper_shape
from airprune.components.layers import PrunableLayers
from airprune.errors import UnknownName
from airprune.methods.aggregation.masked_sum import aggregate
from airprune.methods.compression.base import Wire
from airprune.methods.masking import MASKINGS
from airprune.methods.masking.base import Masking, SubModel
from airprune.methods.masking.core.masks import choose_mask
from airprune.methods.masking.dpf import sparsity_at
from airprune.methods.masking.early import Early, jaccard
from airprune.methods.masking.feddst import FedDst, layer_counts, readjusted
from airprune.methods.masking.iterative import Iterative, pruned, rate
from airprune.methods.masking.prunefl import reconfigured
from airprune.methods.masking.snip import saliency
from airprune.models.catalogue import FlatModel
from airprune.rounds.device import device_round
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import Device, LocalSettings, Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.method import Method
from airprune.rounds.wire import broadcast_from_bytes, broadcast_to_bytes
from support.each import each
from support.played import played, round_view, shape_of
from support.tiny import blobs, tiny_scenario

TIGHT_S = 0.0003  # about half of the MLP's weights


def start_of(masking, shape):
    return {slot.name: slot.row(shape) for slot in masking.slots(shape)}


def device_with(masking, *, model, x, y, **settings) -> Device:
    method = replace(Method.of(tiny_scenario()).local, masking=masking)
    flat = FlatModel(model, float64=True)
    wire = Wire(value_bits=64.0, num_weights=flat.shape.num_weights, num_tensors=1)
    return Device(flat, x, y, LocalSettings(**{"batch_size": 16, "local_epochs": 1, **settings}), method, wire)


def one_round(device, received, *, keep, samples, rate=0.25, memory=None, round_index=0, mask=None):
    orders = Orders(
        device=0, keep=keep, learning_rate=rate, round_index=round_index, memory=memory or start_memory(device)
    )
    shared = Broadcast(model=received, mask=mask)
    return device_round(device, shared, orders, samples=np.arange(samples), streams=Streams(0, 0, 0))


def start_memory(device):
    return start_of(device.method.masking, device.shape)


# What a device sees while it trains


@pytest.mark.parametrize("power", [0, 1, 2])
def test_the_gradient_sum_is_of_all_weights_before_anything_is_masked(power):
    runs, seen = [], []
    half = np.arange(16 * 64) % 2 == 0

    class Watcher(Masking):
        name = "watcher"

        def choose(self, view):
            return SubModel(sent=half, held=half, moves=half, collect=power if view.round_index == 3 else 0)

        def report(self, run, before, after):
            runs.append(run)
            return {"watcher.samples": np.array([run.num_samples])}

    (x, y), _ = blobs()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(12, 64, bias=False), torch.nn.ReLU(), torch.nn.Linear(64, 4, bias=False))
    one = device_with(Watcher(), model=net, x=x, y=y)
    gradient = one.gradient
    one.gradient = lambda batch: (gradient(batch), seen.append(one.model.gradient.numpy().copy()))[0]
    start = one.model.state_array.copy()
    upload = one_round(one, start, keep=512, samples=60, round_index=3)
    assert upload.report["watcher.samples"] == [60] and len(seen) == 4
    assert runs[0].loss == upload.loss and runs[0].num_steps == 4
    if power:
        assert np.array_equal(runs[0].gradient_sum, sum(step**power for step in seen))
        assert runs[0].gradient_sum[~half].any()
    one_round(one, start, keep=512, samples=60, round_index=4)
    assert runs[1].gradient_sum is None and (power or runs[0].gradient_sum is None)


def test_dense_gradients_of_a_sparse_model_take_a_third_of_what_pruning_saves():
    """Per iteration ⅔ (W_c + K) + ⅓ W weights, for planner and clock alike."""
    compute = Experiment.of(tiny_scenario(), dataset=blobs()).compute
    device, cpu_hz, total = np.array([0]), np.array([3e9]), compute.num_weights
    a_s, x_s = compute.line(device, cpu_hz, dense_gradients=True)
    clock_s = compute.training_s(np.array([300]), device, cpu_hz, dense_gradients=True)
    per_weight_s = compute.training_s(np.array([1]), device, cpu_hz)
    assert clock_s == pytest.approx(per_weight_s * (2 / 3 * 300 + total / 3), rel=1e-12)  # sums of a few terms
    assert clock_s == pytest.approx(a_s * 300 + x_s, rel=1e-12)


def test_numbers_for_each_device_travel_as_they_are():
    shared = np.array([[3, -1], [0, 2]])
    assert np.array_equal(
        broadcast_from_bytes(broadcast_to_bytes(Broadcast(model=np.zeros(2), mask=shared))).mask, shared
    )


# PruneFL

TWO = PrunableLayers.of([("one", 1, 5), ("two", 1, 3)])


def quotient(mask, squares, time, fixed_square, fixed_seconds):
    return (fixed_square + squares[mask].sum()) / (fixed_seconds + time[mask].sum())


def best_superset(kept, squares, time, fixed_square, fixed_seconds):
    """By trying all."""
    free = np.flatnonzero(~kept)
    best = -math.inf
    for chosen in itertools.product([False, True], repeat=free.size):
        mask = kept.copy()
        mask[free] = chosen
        best = max(best, quotient(mask, squares, time, fixed_square, fixed_seconds))
    return best


def test_prunefl_reconfigures_as_by_hand():
    weights = np.array([0.9, -0.1, 0.5, 0, 0, 0.3, 0, -0.7])
    mask = np.array([1, 1, 1, 0, 0, 1, 0, 1], dtype=bool)
    squares = np.array([4, 1, 2, 9, 0.5, 0.2, 3, 1])
    seconds = np.array([2.0, 1.0])
    known = {"layers": TWO, "seconds": seconds, "fixed_square": 0.0, "fixed_seconds": 1.0}
    new = reconfigured(np.abs(weights), mask, squares, share=0.34, at_most=8, **known)
    assert new.tolist() == [True, False, True, True, False, True, True, True]
    time = np.repeat(seconds, [5, 3])
    kept = mask & (np.arange(8) != 1)
    assert quotient(kept, squares, time, 0.0, 1.0) == pytest.approx(1.0285714, abs=1e-7)  # as printed
    assert quotient(new, squares, time, 0.0, 1.0) == pytest.approx(1.92, rel=1e-12)
    assert best_superset(kept, squares, time, 0.0, 1.0) == pytest.approx(1.92, rel=1e-12)
    capped = reconfigured(np.abs(weights), mask, squares, share=0.34, at_most=5, **known)
    assert capped.sum() == 5 and capped[3] and np.all(new[capped])  # the best candidate first
    quiet = reconfigured(np.abs(weights), mask, np.where(mask, squares, 0.0), share=0.0, at_most=8, **known)
    assert np.array_equal(quiet, mask)


@each("seed", range(20))
def test_prunefl_reconfigures_as_well_as_trying_all_masks(seed):
    rng = np.random.default_rng(seed)
    mask, squares, sizes = rng.random(8) < 0.5, rng.exponential(size=8), rng.random(8)
    seconds, fixed = rng.uniform(0.5, 2.0, size=2), (float(rng.random()), float(rng.uniform(0.1, 3)))
    new = reconfigured(
        sizes, mask, squares, layers=TWO, share=0.4, seconds=seconds, fixed_square=fixed[0], fixed_seconds=fixed[1],
        at_most=8,
    )  # fmt: skip
    kept = np.zeros(8, dtype=bool)
    for layer in TWO:
        inside = np.flatnonzero(mask[layer.span]) + layer.start
        inside = inside[np.argsort(sizes[inside])]
        kept[inside[int(0.4 * inside.size) :]] = True
    time = np.repeat(seconds, [5, 3])
    assert np.all(new[kept])
    # One division of the same sums, in another order.
    assert quotient(new, squares, time, *fixed) == pytest.approx(best_superset(kept, squares, time, *fixed), rel=1e-12)


# Schedules


def test_twenty_prunings_to_a_fifth_take_this_share_each_and_whole_weights_of_each_layer():
    share = rate(0.2, 20)
    assert share == pytest.approx(0.07731916540941164, rel=1e-12)
    layers = paper_shape().layers
    sizes = np.random.default_rng(0).random(layers.num_weights)
    mask, expected = np.ones(layers.num_weights, dtype=bool), [layer.num_weights for layer in layers]
    for _ in range(20):
        before, mask = mask, pruned(sizes, mask, share, layers)
        expected = [count - math.floor(share * count) for count in expected]
        assert [int(mask[layer.span].sum()) for layer in layers] == expected
        assert not np.any(mask & ~before)
    assert 0 <= mask.sum() - 0.2 * layers.num_weights < 20 * len(layers)  # less than a weight per layer and step
    one_step = pruned(sizes, np.ones_like(mask), rate(0.5, 1), layers)
    for layer in layers:
        assert sizes[layer.span][one_step[layer.span]].min() > sizes[layer.span][~one_step[layer.span]].max()


def test_iterative_prunes_in_the_first_half_and_never_takes_back():
    masking, shape = Iterative(steps=4), shape_of((4, 25))
    rng = np.random.default_rng(1)
    values, counts, masks = start_of(masking, shape), [], []
    for index in range(8):
        view = round_view(shape, [20, 30], rng.normal(size=100), round_index=index, num_rounds=8)
        mask, values = masking.prepare(view, values)
        counts.append(int(masking.counts(view, mask)[0]))
        masks.append(np.ones(100, dtype=bool) if mask is None else mask)
        values |= masking.after_edge_round(SimpleNamespace(view=view, sums={}), values)
    share = 1 - 0.2**0.25
    kept = [100]
    for _ in range(4):
        kept.append(kept[-1] - math.floor(share * kept[-1]))
    assert counts == [100, 100, kept[1], kept[2], kept[3], 20, 20, 20]  # at last what fits
    assert all(not np.any(later & ~earlier) for earlier, later in itertools.pairwise(masks[:5]))
    one_shot = Iterative(late=False)
    at_once, _ = one_shot.prepare(round_view(shape, [20], rng.normal(size=100)), start_of(masking, shape))
    assert at_once.sum() == 20 and one_shot.adapts and not masking.adapts


def test_early_prunes_once_the_kept_weights_were_alike_three_times():
    assert jaccard(np.array([1, 1, 0, 0], bool), np.array([0, 1, 1, 0], bool)) == pytest.approx(1 / 3)
    masking, shape = Early(), shape_of((2, 10))
    rng = np.random.default_rng(2)
    steady = rng.permutation(20) + 1.0
    models = [rng.permutation(20) + 1.0, steady, -steady, 2 * steady, steady, rng.permutation(20) + 1.0]
    values, masks = start_of(masking, shape), []
    for index in range(12):  # two edge rounds per global round
        view = round_view(shape, [8], models[index // 2], round_index=index, global_round=index // 2)
        mask, values = masking.prepare(view, values)
        masks.append(mask)
    assert masks[:8] == [None] * 8
    expected = choose_mask(steady, keep=8, layers=shape.layers)
    assert all(np.array_equal(mask, expected) for mask in masks[8:])  # and for good, whatever comes later


def test_snip_scores_a_linear_model_as_by_hand():
    """F = ½ (w·x − y)², w = (1, −2, ½), x = (1, 1, 4), y = −1: w·x − y = 2, g = (2, 2, 8), |w g| = (2, 4, 4)."""
    before, gradient, learning_rate = np.array([1.0, -2.0, 0.5]), np.array([2.0, 2.0, 8.0]), 0.125
    scores = saliency(before, before - learning_rate * gradient)
    assert (scores / learning_rate).tolist() == [2.0, 4.0, 4.0]  # exact in binary
    masking, shape = MASKINGS["snip"](), shape_of((1, 3))
    view = round_view(shape, [2], before, before - learning_rate * gradient)
    mask, values = masking.prepare(view, start_of(masking, shape))
    assert mask is None and masking.counts(view, mask).tolist() == [3]  # the first round is dense
    values |= masking.after_edge_round(SimpleNamespace(view=view, sums={}), values)
    later = round_view(shape, [1], np.zeros(3), round_index=1)
    assert masking.stays(values).tolist() == [False, True, True]
    assert masking.prepare(later, values)[0].sum() == 1  # less time: a part of it


# FedDST


def test_feddst_swaps_small_weights_for_large_gradients_as_by_hand():
    weights = np.array([0.9, -0.05, 0.4, 0.3, 0, 0, 0, 0])
    gradient = np.array([0, 0, 0, 0, 0.2, -0.9, 0.1, 0.4])
    mask, grown = readjusted(weights, weights != 0, gradient, 0.5, PrunableLayers.of([("one", 1, 8)]))
    assert mask.tolist() == [True, False, True, False, False, True, False, True]
    assert grown.tolist() == [False] * 5 + [True, False, True]
    unchanged, nothing = readjusted(weights, weights != 0, gradient, 0.0, PrunableLayers.of([("one", 1, 8)]))
    assert np.array_equal(unchanged, weights != 0) and not nothing.any()


def test_feddst_readjusts_after_the_first_round_with_a_share_that_falls_as_a_cosine():
    masking = FedDst(every=5, share=0.5, until=20)
    assert [masking.share_at(t) for t in (0, 10, 20, 30)] == pytest.approx([0.5, 0.25, 0.0, 0.0])
    assert [t for t in range(30) if masking.readjusts(t)] == [1, 6, 11, 16]
    assert not any(FedDst(share=0.0).readjusts(t) for t in range(30))


def test_feddst_gives_small_layers_more_of_their_weights_and_keeps_the_count():
    layers = paper_shape().layers
    kept = layer_counts(layers, 2516)
    assert sum(kept) == 2516 and kept[1] / 80 > kept[0] / 25_088
    # Sparsities in proportion to 1 − (in + out) / (in · out), by hand.
    raw = np.array([1 - 3144 / 25_088, 1 - 18 / 80])
    scale = (25_168 - 2516) / (raw @ [25_088, 80])
    assert kept[1] == math.floor((1 - scale * raw[1]) * 80)


def test_feddst_begins_with_the_largest_or_with_random_weights_as_many_of_each_layer():
    shape = paper_shape()
    model = np.random.default_rng(0).normal(size=shape.num_state)
    view = round_view(shape, 2516, model)
    masks = {first: FedDst(first=first).prepare(view, {})[0] for first in ("magnitude", "random")}
    sizes, kept = np.abs(model[shape.prunable]), layer_counts(shape.layers, 2516)
    for mask in masks.values():
        assert [int(mask[layer.span].sum()) for layer in shape.layers] == kept
    for layer in shape.layers:
        own, mask = sizes[layer.span], masks["magnitude"][layer.span]
        assert own[mask].min() > own[~mask].max()
    # Of random weights about a tenth are among the largest tenth.
    assert 0.05 < np.mean(masks["magnitude"][masks["random"]]) < 0.2


# DPF


def test_dpf_recovers_from_a_wrong_start():
    """F = ½ ‖w − t‖²; from w = (1, 0.9) the mask turns to the second weight, which the target needs."""
    target, used = np.array([0.0, 2.0]), []
    masking = MASKINGS["dpf"](every=1)
    x, y = np.zeros((3, 2), dtype=np.float32), np.zeros(3, dtype=np.int64)
    one = device_with(masking, model=torch.nn.Linear(2, 1, bias=False), x=x, y=y, batch_size=1)
    weights = one.model.state_array

    def gradient(batch):
        used.append(weights != 0)
        one.model.gradient.numpy()[:] = weights - target
        return 0.0

    one.gradient, moved = gradient, []
    expected = [(0.75, 1.4), (0.75, 1.55), (0.75, 1.6625)]
    for samples in (1, 2, 3):  # as many steps
        used.clear()
        upload = one_round(one, np.array([1.0, 0.9]), keep=1, samples=samples)
        moved.append(upload.memory["dpf.own"][0])
        assert upload.mask.tolist() == [False, True]
        assert upload.state[1] == pytest.approx(expected[samples - 1][1], rel=1e-12)
    assert [mask.tolist() for mask in used] == [[True, False], [False, True], [False, True]]
    assert moved == [np.float32(0.75)] * 3
    # The next round starts from the edge's value of what was sent and from the device's own of the rest.
    again = one_round(one, np.array([9.0, 1.5]), keep=1, samples=1, memory=upload.memory)
    assert again.memory["dpf.own"][0] == np.float32(0.75)
    assert again.state[1] == pytest.approx(1.5 + 0.25 * 0.5, rel=1e-12)


def softmax_gradient(weights, bias, x, y):
    """∂/∂w and ∂/∂b of the mean cross-entropy of softmax(x wᵀ + b)."""
    scores = x @ weights.T + bias
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    likely[np.arange(len(y)), y] -= 1.0
    return likely.T @ x / len(y), likely.mean(axis=0)


@pytest.mark.parametrize("uploads", ["kept", "all"])
def test_dpf_moves_dense_weights_by_the_gradient_at_the_pruned_model_as_in_numpy(uploads):
    """w ← w − η ∇F(m ⊙ w), m the 7 largest |w| of 12, at least one in each row, anew every second step."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(9, 4)), rng.integers(3, size=9)
    weights, bias, rate, keep = rng.normal(size=(3, 4)), rng.normal(size=3), 0.25, 7
    start = np.concatenate([bias, weights.ravel()])
    for step in range(6):
        if step % 2 == 0:
            rows = np.abs(weights).argmax(axis=1) + np.array([0, 4, 8])
            first = np.argsort(-np.abs(weights), axis=None)
            order = [*rows, *(one for one in first if one not in rows)]
            mask = np.isin(np.arange(12), order[:keep]).reshape(3, 4)
        by_weight, by_bias = softmax_gradient(weights * mask, bias, x, y)
        weights, bias = weights - rate * by_weight, bias - rate * by_bias
    masking = MASKINGS["dpf"](every=2, uploads=uploads)
    model = torch.nn.Linear(4, 3)
    one = device_with(masking, model=model, x=x, y=y, batch_size=9, local_epochs=6)
    upload = one_round(one, start, keep=keep, samples=9, rate=rate, mask=np.array([keep]))
    if uploads == "all":
        assert upload.mask is None
        assert upload.state == pytest.approx(np.concatenate([bias, weights.ravel()]), rel=1e-12)  # float64
        return
    kept = np.abs(weights).ravel() >= np.sort(np.abs(weights), axis=None)[-keep]
    assert np.array_equal(upload.mask, kept) and kept.reshape(3, 4).any(axis=1).all()
    assert upload.state[3:][kept] == pytest.approx(weights.ravel()[kept], rel=1e-12)
    assert upload.memory["dpf.own"][~kept] == pytest.approx(weights.ravel()[~kept], rel=1e-6)  # a float32 slot


def test_dense_dpf_pays_for_the_whole_model_where_sparse_dpf_pays_for_what_it_sends_and_a_bitmap():
    dense, sparse = (played(tiny_scenario(method=name, plan__deadline_s=TIGHT_S)) for name in ("dpf-dense", "dpf"))
    for one in dense:
        assert one.timed.planned.bits.tolist() == [64.0 * 1024] * len(one.timed.planned.device)
        assert (one.timed.edge_latency_s > TIGHT_S).any()
    for one in sparse:
        keep = one.timed.planned.keep
        assert (keep < 1024).any()
        assert np.array_equal(one.timed.planned.bits, 64.0 * keep + np.where(keep < 1024, 1024, 0))
        assert (one.timed.edge_latency_s <= TIGHT_S * (1 + 1e-9)).all()


def test_dpf_evaluates_its_largest_weights_that_were_sent_as_many_as_the_device_that_used_the_most():
    masking, shape, model = MASKINGS["dpf"](), shape_of((1, 5)), np.array([0.5, -3.0, 0.1, 2.0, -1.0])
    values = start_of(masking, shape)
    assert masking.evaluated(shape, model, values) is model  # before the first round
    view = round_view(shape, [2, 3, 1], model)
    _, values = masking.prepare(view, values)
    sent = np.array([True, True, True, False, True])
    values |= masking.after_edge_round(SimpleNamespace(view=view, held=sent), values)
    assert masking.evaluated(shape, model, values).tolist() == [0.5, -3.0, 0.0, 0.0, -1.0]
    dense = MASKINGS["dpf"](uploads="all")
    shared, values = dense.prepare(view, start_of(dense, shape))
    assert shared.tolist() == [1] and dense.counts(view, shared).tolist() == [5, 5, 5]
    values |= dense.after_edge_round(SimpleNamespace(view=view, held=np.ones(5, dtype=bool)), values)
    assert dense.evaluated(shape, model, values).tolist() == [0.0, -3.0, 0.0, 0.0, 0.0]


def test_the_name_dpf_global_is_refused_with_those_of_the_two_methods_that_it_could_mean():
    with pytest.raises(UnknownName) as refused:
        tiny_scenario(method="dpf-global")
    assert str(refused.value) == (
        "Scenario.method 'dpf-global' is not the name of a method; write magnitude-rechosen or dpf-dense."
    )


def test_dpf_becomes_sparse_by_a_cubic_and_never_less_than_the_deadline_asks():
    assert [sparsity_at(0.8, t) for t in (0, 0.25, 0.5, 1, 2)] == pytest.approx([0, 0.4625, 0.7, 0.8, 0.8])
    masking, shape = MASKINGS["dpf"](sparsity=0.8, until=4), shape_of((10, 10))
    views = [round_view(shape, [100, 40], np.zeros(100), round_index=t) for t in (0, 1, 2, 4)]
    assert [masking.counts(view, None).tolist() for view in views] == [[100, 40], [54, 40], [30, 30], [20, 20]]


def test_a_weight_that_nobody_holds_waits_at_the_cloud_and_comes_back():
    """F = ½ ‖w − t‖², t = (0, 2), η = ¼, one weight fits: (1, 0.9) → (0.75, 0.9) → (0.75, 1.175)."""
    masking, shape = MASKINGS["magnitude-rechosen"](), shape_of((1, 2))
    cloud, masks = np.array([1.0, 0.9]), []
    for _ in range(2):
        shared, _ = masking.prepare(round_view(shape, [1], cloud), {})
        view = SimpleNamespace(keep=1, shape=shape, shared=shared)
        sub_model = masking.choose(view)
        masks.append(sub_model.sent.tolist())
        trained = np.where(sub_model.moves, cloud - 0.25 * (cloud - [0.0, 2.0]), 0.0)
        cloud = aggregate(trained[np.newaxis], sub_model.sent[np.newaxis], cloud)
    assert masks == [[True, False], [False, True]]
    assert cloud == pytest.approx([0.75, 1.175], rel=1e-12)


def test_devices_with_less_time_hold_a_part_of_the_clouds_largest_weights_for_a_global_round():
    values = {"method": "magnitude-rechosen", "plan__deadline_s": TIGHT_S, "radio__fading": "rayleigh"}
    rounds = played(tiny_scenario(rounds__edge_rounds=2, **values))
    shared = [one.timed.planned.mask for one in rounds]
    assert (
        np.array_equal(shared[0], shared[1])
        and np.array_equal(shared[2], shared[3])
        and not np.array_equal(shared[1], shared[2])
    )
    assert len({int(keep) for one in rounds for keep in one.timed.planned.keep}) > 2
    for one in rounds:
        assert np.array_equal(one.timed.planned.bits, 64.0 * one.timed.planned.keep)  # nothing to say which they are
    masking, shape = MASKINGS["magnitude-rechosen"](), shape_of((4, 25))
    scores = np.random.default_rng(0).random(100)
    small, large = (masking.choose(SimpleNamespace(keep=keep, shape=shape, shared=scores)).sent for keep in (20, 60))
    assert small.sum() == 20 and not np.any(small & ~large)


def test_the_model_that_the_device_with_the_most_weights_trained_is_evaluated():
    masking, shape, model = MASKINGS["magnitude-rechosen"](), shape_of((1, 5)), np.array([0.5, -3.0, 0.1, 2.0, -1.0])
    values = start_of(masking, shape)
    assert masking.evaluated(shape, model, values) is model  # before the first round
    _, values = masking.prepare(round_view(shape, [2, 3, 1], model), values)
    assert masking.evaluated(shape, model, values).tolist() == [0.0, -3.0, 0.0, 2.0, -1.0]
    assert model[0] == 0.5  # the cloud keeps the others
    shrunk = np.array([0.5, -3.0, 0.1, 2.0, -0.2])  # the first weight is now larger, but no device has trained it
    assert masking.evaluated(shape, shrunk, values).tolist() == [0.0, -3.0, 0.0, 2.0, -0.2]


# Whole runs

QUICK = {
    "iterative": {"steps": 2},
    "early": {"similarity": 0.0, "times": 1},
    "snip": {},
    "prunefl": {"initial_rounds": 1, "every": 2},
    "feddst": {"every": 2, "until": 100},
}
# Of round 0, 1, …: a bit per weight for a mask, or an exact value per weight; 1,024 weights.
BESIDE_BITS = {
    **dict.fromkeys(["iterative", "early", "snip"], lambda index: 0),
    "prunefl": lambda index: 1024 if index == 0 else 64 * 1024 * (index % 2),
    "feddst": lambda index: 1024 * (index % 2),
}


@pytest.mark.parametrize("name", QUICK)
def test_what_a_common_mask_removes_is_zero_in_every_model_and_never_sent(name):
    options = {f"masking__{name}__{key}": value for key, value in QUICK[name].items()}
    rounds = played(tiny_scenario(method=name, plan__deadline_s=TIGHT_S, rounds__edge_rounds=3, **options))
    masks = [one.values[f"{name}.mask"] for one in rounds]
    assert masks[-1].mean() < 0.95
    for index, (one, mask) in enumerate(zip(rounds, masks, strict=True)):
        assert not one.after[:, ~mask].any()
        assert np.all(one.timed.planned.bits == 64 * one.timed.planned.keep + BESIDE_BITS[name](index))
        shared = one.timed.planned.mask
        assert np.all(one.timed.planned.keep == (1024 if shared is None else shared.sum()))
    changed = [not np.array_equal(*pair) for pair in itertools.pairwise(masks)]
    assert any(changed) == (name != "snip")  # after its first round it is for good
    if name in ("iterative", "early", "snip"):
        assert all(not np.any(later & ~earlier) for earlier, later in itertools.pairwise(masks))
    else:
        assert any(np.any(later & ~earlier) for earlier, later in itertools.pairwise(masks))


def test_scores_without_a_past_are_those_of_taylor_and_with_one_an_average():
    common = {"plan__deadline_s": TIGHT_S, "plan__scheme": "optimal"}
    alone = played(tiny_scenario(masking__name="averaged", masking__averaged__ema=0.0, **common))
    probe = played(tiny_scenario(masking__name="probe", masking__probe__importance="taylor", **common))
    assert np.array_equal(alone[-1].after, probe[-1].after)

    masking = MASKINGS["averaged"](ema=0.75)
    (x, y), _ = blobs()
    torch.manual_seed(0)
    one = device_with(masking, model=torch.nn.Linear(12, 4, bias=False), x=x, y=y)
    start, memory = one.model.state_array.copy(), {"averaged.scores": np.linspace(0.0, 1.0, 48)}
    index = Streams(0, 0, 0).batches[0].permutation(np.arange(60))[:16]
    one.gradient(index)
    new = np.square(start * one.model.gradient.numpy())
    upload = one_round(one, start, keep=20, samples=60, memory=memory)
    expected = 0.75 * memory["averaged.scores"] + 0.25 * new
    np.testing.assert_allclose(upload.memory["averaged.scores"], expected, rtol=1e-12)
    assert np.array_equal(upload.mask, choose_mask(expected, keep=20, layers=one.shape.layers))
