"""What the native library does beside gradients: scores, masks and sums, against torch, numpy and wrong calls."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from airprune.components.layers import PrunableLayers
from airprune.errors import InvalidValue
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.methods.masking.core.masks import choose_mask, mask_of_moves
from airprune.models.catalogue import FlatModel, PaperCNN
from airprune.models.kernels import native
from airprune.models.kernels.autograd import tensor_of
from airprune.models.kernels.native import NativeGradient, NativeScores
from airprune.models.losses.classification import ACCURACY, CROSS_ENTROPY
from airprune.models.losses.own import Criteria
from airprune.rounds.training.evaluator import NativeEvaluator
from airprune.rounds.training.torch_evaluator import evaluate

pytestmark = [
    pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}"),
    pytest.mark.usefixtures("one_thread"),
]
PAPER = PrunableLayers.of([("fc1", 8, 3136), ("fc2", 10, 8)])


# Scores.


def problem(shape=(2, 13, 11), hidden=9, classes=7, count=6):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = FlatModel(PaperCNN(shape, classes, hidden))
    return model, rng.normal(size=(count, *shape)).astype(np.float32), rng.integers(classes, size=count)


@pytest.mark.parametrize("shape", [(1, 28, 28), (2, 13, 11), (1, 4, 4), (3, 14, 7)], ids=str)
def test_scores_are_torchs_and_the_same_bytes_from_every_instruction_set(shape):
    model, x, y = problem(shape)
    found = [NativeScores(model, x, y, instruction_set=name)(slice(None)) for name in native.instruction_sets]
    assert len({scores.tobytes() for scores in found}) == 1
    with torch.no_grad():
        expected = model.module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-5)  # float32


def test_the_loss_of_scores_is_the_loss_that_training_reports():
    model, x, y = problem()
    loss = NativeGradient(model, x, y)(np.arange(6))
    total, _ = NativeEvaluator(model, x, y).total(model.state_array[None].copy(), slice(None))
    assert total / 6 == pytest.approx(loss, rel=1e-14)  # both in double from the same scores


@pytest.mark.parametrize("members", [1, 3])
def test_native_evaluation_agrees_with_torchs(members):
    model, x, y = problem(count=40)
    rng = np.random.default_rng(1)
    states = model.state_array + rng.normal(scale=0.05, size=(members, model.num_state)).astype(np.float32)
    evaluator = NativeEvaluator(model, x, y)
    for samples in (slice(3, 31), np.array([5, 5, 39, 0])):
        index = torch.from_numpy(samples) if isinstance(samples, np.ndarray) else samples
        loss, correct = evaluate(
            model, states, tensor_of(x)[index], tensor_of(y)[index], Criteria(CROSS_ENTROPY, ACCURACY)
        )
        ours = evaluator.total(states, samples)
        assert ours[0] == pytest.approx(loss, rel=1e-5) and ours[1] == correct  # torch sums in float32


def test_a_model_that_has_diverged_has_a_loss_of_nan():
    model, x, y = problem()
    states = np.full((1, model.num_state), np.nan, np.float32)
    loss, _ = NativeEvaluator(model, x, y).total(states, slice(None))
    assert np.isnan(loss)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda call: call.update(instruction_set="mmx"),
        lambda call: call.update(x=call["x"][:-1]),
        lambda call: call.update(x=call["x"].astype(np.float64)),
        lambda call: call.update(state=call["state"][:-1]),
        lambda call: call.update(offsets=(-1, *call["offsets"][1:])),
        lambda call: call.update(scratch=call["scratch"][:-1]),
        lambda call: call.update(scores=call["scores"][:, :-1]),
        lambda call: call.update(scores=call["scores"].reshape(-1)[:-1]),
    ],
)
def test_wrong_calls_of_scores_are_refused(wrong):
    model, x, y = problem()
    kernel = NativeScores(model, x, y)
    call = {
        "instruction_set": kernel._instruction_set,
        "shape": kernel._shape,
        "offsets": kernel._offsets,
        "state": model.state_array,
        "x": x,
        "scores": np.zeros((6, 7), np.float32),
        "scratch": kernel._scratch,
    }
    native._paper_cnn.scores(*call.values())
    wrong(call)
    with pytest.raises((ValueError, BufferError)):
        native._paper_cnn.scores(*call.values())


# Masks.


def by_numpy(monkeypatch, *arguments, **options):
    with monkeypatch.context() as patch:
        patch.setattr(native, "trouble", "not now")
        return choose_mask(*arguments, **options)


def zeros_of_dead_units(rng, size):
    scores = np.abs(rng.normal(size=size))
    scores[: size // 3] = 0.0
    return scores


SCORES = {
    "small positive": lambda rng, size: np.abs(rng.normal(size=size)) * 1e-6,
    "of both signs": lambda rng, size: rng.normal(size=size),
    "dead units": zeros_of_dead_units,
    "few values": lambda rng, size: np.round(rng.normal(size=size), 1),
    "all equal": lambda rng, size: np.zeros(size),
    "zeros of both signs": lambda rng, size: np.where(rng.random(size) < 0.5, 0.0, -0.0),
    "subnormal": lambda rng, size: rng.random(size) * 1e-40,
    "of all sizes": lambda rng, size: 10.0 ** rng.uniform(-37, 37, size),
    "ascending": lambda rng, size: np.arange(size, dtype=float),
}


@pytest.mark.parametrize("kind", SCORES)
def test_the_native_mask_is_numpys(kind, monkeypatch):
    rng = np.random.default_rng(len(kind))
    for keep in (18, 19, 700, PAPER.num_weights // 2, 25_000, PAPER.num_weights - 1):
        scores = SCORES[kind](rng, PAPER.num_weights).astype(np.float32)
        ties = np.round(np.abs(rng.normal(size=scores.size)), int(rng.integers(0, 7))).astype(np.float32)
        options = {"keep": keep, "layers": PAPER, "tie_break": ties}
        mask = choose_mask(scores, **options)
        assert np.count_nonzero(mask) == keep
        np.testing.assert_array_equal(mask, by_numpy(monkeypatch, scores, **options))


@settings(max_examples=150)
@given(st.data())
def test_the_native_mask_is_numpys_for_layers_of_every_size(data):
    shapes = data.draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 40)), min_size=1, max_size=4))
    layers = PrunableLayers.of([(str(i), *shape) for i, shape in enumerate(shapes)])
    keep = data.draw(st.integers(layers.num_rows, layers.num_weights))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    scores, ties = (rng.integers(-2, 3, layers.num_weights).astype(np.float32) for _ in range(2))
    options = {"keep": keep, "layers": layers, "tie_break": ties}
    with pytest.MonkeyPatch.context() as patch:
        expected = by_numpy(patch, scores, **options)
    np.testing.assert_array_equal(choose_mask(scores, **options), expected)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 2048, 2049, 10_007])
def test_the_threshold_is_where_a_sort_puts_it(size):
    rng = np.random.default_rng(size)
    scores = rng.permutation(size).astype(np.float32)
    for keep in {1, max(size // 3, 1), size}:
        mask = native.best_weights(scores, np.zeros_like(scores), np.array([0]), keep)
        np.testing.assert_array_equal(mask, scores >= np.sort(scores)[size - keep])


@pytest.mark.parametrize("dead_rows", [0, 3, 8])
def test_the_mask_of_moves_is_that_of_their_scores(monkeypatch, dead_rows):
    rng = np.random.default_rng(dead_rows)
    weights, gradient = (rng.normal(size=PAPER.num_weights).astype(np.float32) for _ in range(2))
    gradient[: 3136 * dead_rows] = 0.0
    weights[::5] = -0.0
    for keep in (18, 700, PAPER.num_weights // 2, PAPER.num_weights - 1):
        for rate in (0.01, 1e-3, 3e-42):  # the last one makes most scores zero or denormal
            mask = mask_of_moves(weights, gradient, rate, keep=keep, layers=PAPER)
            options = {"keep": keep, "layers": PAPER, "tie_break": np.abs(weights)}
            np.testing.assert_array_equal(mask, by_numpy(monkeypatch, rate * np.abs(gradient), **options))


def test_moves_that_are_not_finite_or_not_in_float32_are_left_to_numpy():
    weights, gradient = np.ones((2, PAPER.num_weights), np.float32)
    options = {"keep": 100, "layers": PAPER}
    assert mask_of_moves(weights, gradient, 0.1, **options) is not None
    for rate in (0.0, -0.1, np.nan, np.inf, np.float64(0.1)):
        assert mask_of_moves(weights, gradient, rate, **options) is None
    assert mask_of_moves(weights.astype(np.float64), gradient, 0.1, **options) is None
    for values in (weights, gradient):
        values[7] = np.nan
        assert mask_of_moves(weights, gradient, 0.1, **options) is None
        values[7] = 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["scores", "tie_break"])
def test_a_score_that_is_not_finite_is_refused_as_by_numpy(which, value):
    arrays = {name: np.ones(PAPER.num_weights, np.float32) for name in ("scores", "tie_break")}
    arrays[which][25_100] = value
    with pytest.raises(InvalidValue, match=rf"^choose_mask\.{which} must be finite, got {value} at entry 25100"):
        choose_mask(keep=100, layers=PAPER, **arrays)


@pytest.mark.parametrize(
    ("rows", "keep"), [([0, 4], 1), ([0, 4], 11), ([0, 4, 4], 5), ([0, 10], 5), ([1], 5), ([], 5), ([0, -3], 5)]
)
def test_wrong_rows_and_counts_are_refused(rows, keep):
    values = np.arange(10, dtype=np.float32)
    with pytest.raises(ValueError, match="row"):
        native.best_weights(values, values, np.array(rows, dtype=np.int64), keep)


# Sums and masked vectors.


def odd_numbers(size, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=size).astype(np.float32)
    values[:: max(size // 4, 1)] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0], np.float32))
    return values, rng.random(size) < 0.5


@pytest.mark.parametrize("size", [0, 1, 7, 8, 33, 25_168])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_masked_vectors_and_sums_are_numpys_to_the_bit(size):
    for seed in range(4):
        values, mask = odd_numbers(size, seed)
        weights = values.copy()
        kept = values * mask
        lost = native.hold(weights, mask)
        np.testing.assert_array_equal(weights.view(np.int32), kept.view(np.int32))
        np.testing.assert_array_equal(lost, float(np.square(values - kept).sum()))
        product = values.copy()
        native.multiply(product, mask)
        np.testing.assert_array_equal(product.view(np.int32), kept.view(np.int32))
        for factor in (1.0, 1 / 3, 512.0):
            total = np.random.default_rng(9).normal(size=size)
            expected = total + factor * values.astype(np.float64)
            native.add_state(total, values, factor)
            np.testing.assert_array_equal(total, expected)
        counts = np.arange(size)
        native.add_counts(counts, mask)
        np.testing.assert_array_equal(counts, np.arange(size) + mask)


def test_what_is_lost_is_added_in_numpys_order_for_vectors_of_every_length():
    rng = np.random.default_rng(0)
    for size in (*range(300), 1_000, 4_097, 25_168):
        weights, mask = rng.normal(size=size).astype(np.float32), rng.random(size) < 0.5
        expected = float(np.square(weights - weights * mask).sum())
        assert native.hold(weights, mask) == expected, size


def test_arrays_of_other_lengths_or_types_are_refused():
    values, mask, total, counts = np.ones(9, np.float32), np.ones(9, bool), np.ones(9), np.ones(9, np.int64)
    wrong = [
        lambda: native.hold(values[:8], mask),
        lambda: native.hold(total, mask),
        lambda: native.multiply(values, mask[:-1]),
        lambda: native.multiply(values, counts),
        lambda: native.add_state(total, values[1:], 1.0),
        lambda: native.add_state(values, values, 1.0),
        lambda: native.add_counts(counts, values),
        lambda: native.add_counts(counts[::2], mask[:5]),
        lambda: native.best_weights(values, values[:-1], np.array([0]), 3),
    ]
    for call in wrong:
        with pytest.raises((ValueError, BufferError)):
            call()
    assert values.sum() == total.sum() == counts.sum() == 9


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [1.0, 2.5, 1.0], [0.3, 1.0, 1.0]], ids=str)
def test_a_masked_sum_counts_as_it_weighs_whatever_the_order_of_weights(weights):
    rng = np.random.default_rng(3)
    whole, left, right = (MaskedSum.zeros(12, slice(4, 12)) for _ in range(3))
    states, masks = rng.normal(size=(3, 12)).astype(np.float32), rng.random((3, 8)) < 0.5
    states[:, 4:] *= masks
    for number, weight in enumerate(weights):
        for total in (whole, left if number < 2 else right):
            total.add(states[number], masks[number], weight)
    left.merge(right)
    expected = sum(weight * mask for weight, mask in zip(weights, masks, strict=True))
    for total in (whole, left, left.copy()):
        np.testing.assert_array_equal(total.weight[4:], expected)
        np.testing.assert_array_equal(total.kept_by, masks.sum(axis=0))
