"""Combining and moving: hand-computed federations of three quadratics, and what nobody held."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from airprune.components.component import paper_shape
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.methods.aggregation.predicted import SumOfSquares
from airprune.methods.aggregation.steps import STEPS
from airprune.methods.objectives import OBJECTIVES

# F_n(w) = ½‖w − t_n‖², devices 0 and 1 on edge A, 2 on edge B; two full-batch steps with η = ½ end at 0.75 t_n from 0.
TARGETS = np.array([[1.0, 0.0], [3.0, 2.0], [-1.0, 4.0]])
SIZES = np.array([1, 3, 2])
EDGE = np.array([0, 0, 1])
STEP, NUM_STEPS = 0.5, 2


def local(start, target, objective="plain", **options):
    """What a device makes of `start`."""
    chosen, w = OBJECTIVES[objective](**options), start.copy()
    for _ in range(NUM_STEPS):
        gradient = w - target
        chosen.adjust(gradient, w, start, {})
        w = w - STEP * gradient
    return w


def combined(name, models, sizes, previous, masks=None):
    aggregation = AGGREGATIONS[name]()
    total = aggregation.Sum.zeros(len(previous), slice(0, len(previous)))
    masks = [None] * len(models) if masks is None else masks
    for model, mask, weight in zip(models, masks, aggregation.weights(np.asarray(sizes)), strict=True):
        total.add(model if mask is None else np.where(mask, model, 0.0), mask, float(weight))
    return aggregation.finish(total, np.asarray(previous, dtype=np.float64))


def hierarchical(name, edge_rounds, start=(0.0, 0.0)):
    """One global round of the three quadratics."""
    edges = []
    for edge in (0, 1):
        model = np.array(start)
        here = np.flatnonzero(edge == EDGE)
        for _ in range(edge_rounds):
            model = combined(name, [local(model, TARGETS[n]) for n in here], SIZES[here], model)
        edges.append(model)
    return combined(name, edges, [4, 2], np.array(start))


def test_flat_averages_of_three_quadratics_are_those_computed_by_hand():
    models = [local(np.zeros(2), target) for target in TARGETS]
    assert np.allclose(models, 0.75 * TARGETS, atol=0)
    assert combined("masked-mean", models, SIZES, np.zeros(2)).tolist() == [0.75, 1.5]
    assert combined("data-weighted", models, SIZES, np.zeros(2)).tolist() == [1.0, 1.75]


@pytest.mark.parametrize(
    ("name", "edge_rounds", "expected"),
    [
        ("data-weighted", 1, (1.0, 1.75)),  # equal to flat FedAvg
        ("masked-mean", 1, (0.375, 1.875)),  # not flat FedAvg: edges have 2 and 1 devices
        ("data-weighted", 2, (1.25, 2.1875)),
        ("masked-mean", 2, (0.46875, 2.34375)),
    ],
)
def test_hierarchical_averages_of_three_quadratics_are_those_computed_by_hand(name, edge_rounds, expected):
    assert hierarchical(name, edge_rounds) == pytest.approx(expected, rel=1e-15)


def test_prox_pulls_each_device_back_to_where_it_started():
    models = [local(np.zeros(2), target, "prox", mu=1.0) for target in TARGETS]
    assert combined("masked-mean", models, SIZES, np.zeros(2)).tolist() == [0.5, 1.0]
    assert np.array_equal(local(np.zeros(2), TARGETS[1], "prox", mu=0.0), local(np.zeros(2), TARGETS[1]))


def two_rounds(step, **options):
    """Models after one and two flat rounds of the three quadratics, uniform averages."""
    chosen = STEPS[step](**options)
    values = {slot.name: np.full(2, slot.start) for slot in chosen.slots(paper_shape())}
    w, found = np.zeros(2), []
    for _ in range(2):
        average = combined("masked-mean", [local(w, target) for target in TARGETS], SIZES, w)
        w, values = chosen.move(w, average, None, values)
        found.append(w)
    return found


def test_server_momentum_gives_the_models_computed_by_hand():
    first, second = two_rounds("momentum", beta=0.9, rate=1.0)
    assert first == pytest.approx((0.75, 1.5), rel=1e-15)
    assert second == pytest.approx((1.6125, 3.225), rel=1e-14)


def test_server_adam_gives_the_models_computed_by_hand_without_a_correction_of_its_bias():
    first, second = two_rounds("adam", rate=0.1, beta_1=0.9, beta_2=0.99, tau=1e-3, start=0.0)
    assert first == pytest.approx((0.098684210526, 0.099337748344), abs=5e-13)  # 12 printed digits
    assert second == pytest.approx((0.231538605417, 0.233169797062), abs=5e-13)


def test_server_adam_starts_its_second_moment_at_the_square_of_tau():
    """τ = 0.5, v₀ = ¼, Δ = (0.75, 1.5): m = 0.1 Δ, v = 0.2475 + 0.01 Δ², w = η m / (√v + ½)."""
    first, _ = two_rounds("adam", rate=0.1, beta_1=0.9, beta_2=0.99, tau=0.5)
    change = np.array([0.75, 1.5])
    assert first == pytest.approx(0.01 * change / (np.sqrt(0.2475 + 0.01 * change**2) + 0.5), rel=1e-14)
    second_moment = STEPS["adam"](tau=0.5).slots(paper_shape())[1]
    assert second_moment.start == 0.25 and STEPS["adam"]().slots(paper_shape())[1].start == pytest.approx(1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_momentum_without_memory_and_rate_one_is_replacement_to_the_bit(dtype):
    rng = np.random.default_rng(1)
    previous, average = rng.normal(size=(2, 1000)).astype(dtype) * np.logspace(-9, 9, 1000).astype(dtype)
    values = {"momentum.velocity": rng.normal(size=1000)}
    moved, _ = STEPS["momentum"](beta=0.0, rate=1.0).move(previous, average, None, values)
    assert moved.dtype == dtype
    assert np.array_equal(moved, average)


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_what_nobody_held_keeps_its_value_and_its_memory(name):
    step = STEPS[name]()
    values = {slot.name: np.array([0.5, 0.25, 0.125]) for slot in step.slots(paper_shape())}
    held = np.array([True, False, True])
    model, moved = step.move(np.ones(3), np.array([2.0, 1.0, 3.0]), held, values)
    assert model[1] == 1.0
    assert model[0] != 1.0 != model[2]
    for slot, before in values.items():
        assert moved[slot][1] == before[1]
        assert moved[slot][0] != before[0]


PREVIOUS = np.array([10.0, 20.0, 30.0, 40.0])
VALUES = np.array([[1.0, 2, 0, 4], [3, 0, 0, 8], [5, 6, 0, 0]])
MASKS = np.array([[1, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 0]], dtype=bool)


def test_fill_counts_what_was_not_sent_as_unchanged():
    assert combined("masked-mean", VALUES, [1] * 3, PREVIOUS, MASKS).tolist() == [3, 4, 30, 6]
    filled = combined("fill", VALUES, [1] * 3, PREVIOUS, MASKS)
    assert filled == pytest.approx([3, 28 / 3, 30, 52 / 3], rel=1e-15)


def test_fill_is_the_masked_mean_damped_by_coverage_for_any_masks():
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = rng.integers(1, 7)
        masks = rng.random((count, 9)) < 0.5
        values, previous = rng.normal(size=(count, 9)), rng.normal(size=9)
        mean = combined("masked-mean", values, [1] * count, previous, masks)
        filled = combined("fill", values, [1] * count, previous, masks)
        coverage = masks.mean(axis=0)
        assert filled - previous == pytest.approx(coverage * (mean - previous), abs=1e-12)


def test_fill_of_whole_models_is_their_mean_to_the_bit():
    values = np.random.default_rng(3).normal(size=(5, 40)).astype(np.float32)
    previous = np.zeros(40)
    assert np.array_equal(
        combined("fill", values, [1] * 5, previous), combined("masked-mean", values, [1] * 5, previous)
    )


def test_merging_sums_of_parts_gives_the_sum_of_all_in_order():
    values = np.random.default_rng(4).normal(size=(6, 8))
    whole, left, right = (MaskedSum.zeros(8, slice(2, 8)) for _ in range(3))
    for number, value in enumerate(values):
        mask = None if number % 2 else np.arange(6) < number
        kept = value.copy()
        if mask is not None:
            kept[2:][~mask] = 0.0
        for total in (whole, left if number < 3 else right):
            total.add(kept, mask, 1.0 + number)
    left.merge(right)
    assert left.mean(np.zeros(8)) == pytest.approx(whole.mean(np.zeros(8)), rel=1e-14)
    assert left.kept_by.tolist() == whole.kept_by.tolist()


# What silent children would have sent


def children(rng, *, common: float, scatter: float, num_children: int = 8, size: int = 4000):
    """(previous, states, masks, what all would have sent); the first half is sent by everybody."""
    previous = rng.normal(size=2 * size)
    together = common * rng.normal(size=2 * size)
    updates = together + scatter * rng.normal(size=(num_children, 2 * size))
    masks = rng.random((num_children, size)) < 0.4
    return previous, previous + updates, masks, previous + updates.mean(axis=0)


def summed(states, masks) -> SumOfSquares:
    size = masks.shape[1]
    total = SumOfSquares.zeros(2 * size, slice(size, 2 * size))
    for state, mask in zip(states, masks, strict=True):
        sent = state.copy()
        sent[size:] *= mask
        total.add(sent, mask)
    return total


@pytest.mark.parametrize(("common", "scatter"), [(1.0, 0.01), (1.0, 0.5), (1.0, 1.0), (0.3, 1.0), (0.01, 1.0)])
def test_prediction_is_nearer_to_what_all_would_have_sent_than_masked_mean_and_fill(common, scatter):
    previous, states, masks, truth = children(np.random.default_rng(1), common=common, scatter=scatter)
    total, size = summed(states, masks), masks.shape[1]

    def distance(name: str) -> float:
        return float(np.square(AGGREGATIONS[name]().finish(total, previous) - truth)[size:].mean())

    assert distance("predicted") <= 1.001 * min(distance("masked-mean"), distance("fill"))


@pytest.mark.parametrize(("common", "scatter"), [(1.0, 0.5), (1.0, 1.0), (0.5, 1.0)])
def test_disagreement_is_the_ratio_of_the_variances(common, scatter):
    previous, states, masks, _ = children(np.random.default_rng(2), common=common, scatter=scatter, size=100_000)
    assert summed(states, masks).disagreement(previous) == pytest.approx(scatter**2 / common**2, rel=0.05)


def test_prediction_by_hand():
    """Two children send (1, 3) and (3, 5) of a weight for all; one sends the other weight as 4. Before: 0.

    Means 2 and 4 … of the first two weights: moved² = (1 + 9 + 9 + 25) / 2 = 22, mean² = 4 + 16 = 20, scatter = 4,
    common = 18, q = 2/9, and the last weight moves by 1/2 + 1/2 · 1 / (1 + 2/9) = 10/11 of 4.
    """
    total = SumOfSquares.zeros(3, slice(2, 3))
    total.add(np.array([1.0, 3.0, 4.0]), np.array([True]))
    total.add(np.array([3.0, 5.0, 0.0]), np.array([False]))
    moved = AGGREGATIONS["predicted"]().finish(total, np.zeros(3))
    assert total.disagreement(np.zeros(3)) == pytest.approx(4 / 18)
    np.testing.assert_allclose(moved, [2, 4, 4 * (1 / 2 + 1 / 2 / (1 + 4 / 18))], rtol=1e-12)


def test_a_single_child_that_leaves_weights_out_is_not_trusted_with_them():
    total = SumOfSquares.zeros(2, slice(1, 2))
    total.add(np.array([1.0, 0.0]), np.array([False]))
    assert AGGREGATIONS["predicted"]().finish(total, np.array([0.0, 7.0])).tolist() == [1.0, 7.0]


_ON_THREADS = """
import os
import subprocess
import sys

import numpy as np
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.aggregation.predicted import SumOfSquares

rng = np.random.default_rng(0)
total = SumOfSquares.zeros(60_000, slice(20_000, 60_000))
previous = rng.normal(size=60_000)
for _ in range(5):
    total.add(previous + rng.normal(size=60_000), rng.random(40_000) < 0.5)
print(total.disagreement(previous).hex())
"""


def test_predictions_do_not_depend_on_the_threads_of_blas():
    """Sums over more than 10,000 entries, which a dot product splits among threads."""
    found = set()
    for threads in ("1", "2"):
        env = {**os.environ, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", _ON_THREADS], env=env, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1
