"""Masks keep an exact number of weights, the best ones, and leave no output unit without input."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airprune.components.layers import PrunableLayer, PrunableLayers
from airprune.errors import InvalidValue, UnknownName
from airprune.methods.masking.core.masks import SCOPES, choose_mask, layer_shares

PAPER = PrunableLayers.of([("fc1", 8, 3136), ("fc2", 10, 8)])


def slow_mask(scores, *, keep, layers, scope, tie_break):
    """By full sorts in Python, weight by weight: score, then tie-break, then low index."""
    best_first = sorted(range(layers.num_weights), key=lambda j: (-scores[j], -tie_break[j], j))
    mask = np.zeros(layers.num_weights, dtype=bool)
    for row in range(layers.num_rows):
        mask[next(j for j in best_first if layers.row_of[j] == row)] = True
    if scope == "global":
        budgets = [(range(layers.num_weights), keep)]
    else:
        spans = [range(layer.start, layer.start + layer.num_weights) for layer in layers]
        budgets = list(zip(spans, layer_shares(layers, keep), strict=True))
    for span, share in budgets:
        for j in best_first:
            if j in span and mask[span.start : span.stop].sum() < share:
                mask[j] = True
    return mask


@st.composite
def requests(draw):
    shapes = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 7)), min_size=1, max_size=4))
    layers = PrunableLayers.of([(f"fc{i}", out, into) for i, (out, into) in enumerate(shapes)])
    keep = draw(st.integers(layers.num_rows, layers.num_weights))
    # Few distinct values, so that ties are everywhere; 1 and 1 + 1e-12 are one number in float32.
    values = st.sampled_from([0.0, 0.0, 1e-60, 1.0, 1.0 + 1e-12, 2.0, 1e300])
    scores = draw(st.lists(values, min_size=layers.num_weights, max_size=layers.num_weights))
    ties = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=layers.num_weights, max_size=layers.num_weights))
    scope = draw(st.sampled_from(SCOPES))
    return {"scores": np.array(scores), "keep": keep, "layers": layers, "scope": scope, "tie_break": np.array(ties)}


@given(requests())
def test_mask_is_that_of_a_full_sort(request):
    assert np.array_equal(choose_mask(**request), slow_mask(**request))


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mask_of_the_paper_model_is_that_of_a_full_sort(scope, dtype):
    rng = np.random.default_rng(1)
    scores = np.abs(rng.normal(size=PAPER.num_weights)).astype(dtype)
    scores[: 4 * 3136] = 0.0  # four dead units
    mask = choose_mask(scores, keep=9000, layers=PAPER, scope=scope)
    shares = (9000,) if scope == "global" else layer_shares(PAPER, 9000)
    spans = [slice(None)] if scope == "global" else [layer.span for layer in PAPER]
    ranks = scores.copy()
    for layer in PAPER:
        layer.matrix(ranks)[np.arange(layer.out_features), layer.matrix(scores).argmax(axis=1)] = np.inf
    for span, share in zip(spans, shares, strict=True):
        order = np.argsort(-ranks[span], kind="stable")
        assert np.array_equal(np.flatnonzero(mask[span]), np.sort(order[:share]))


@given(ratio=st.floats(0.0, 0.99), seed=st.integers(0, 99), scope=st.sampled_from(SCOPES))
def test_any_ratio_keeps_exactly_its_count_and_a_weight_in_every_row(ratio, seed, scope):
    scores = np.random.default_rng(seed).exponential(size=PAPER.num_weights)
    keep = math.floor((1 - ratio) * PAPER.num_weights)
    mask = choose_mask(scores, keep=keep, layers=PAPER, scope=scope)
    assert mask.dtype == bool and mask.shape == (25_168,)
    assert np.count_nonzero(mask) == keep <= (1 - ratio) * 25_168 + 1e-6
    assert np.all(np.bincount(PAPER.row_of, mask) >= 1)


def test_fewest_weights_keep_exactly_the_best_of_each_row():
    scores = np.array([3.0, 1.0, 2.0, 0.1, 0.3, 0.2, 9.0, 8.0])
    layers = PrunableLayers.of([("a", 2, 3), ("b", 1, 2)])
    mask = choose_mask(scores, keep=3, layers=layers)
    assert np.flatnonzero(mask).tolist() == [0, 4, 6]


def test_a_unit_without_any_importance_still_keeps_its_largest_weight():
    layers = PrunableLayers.of([("a", 2, 4)])
    scores = np.array([0.0, 0.0, 0.0, 0.0, 5.0, 6.0, 7.0, 8.0])
    size = np.array([0.1, 0.3, 0.4, 0.2, 1.0, 1.0, 1.0, 1.0])
    mask = choose_mask(scores, keep=4, layers=layers, tie_break=size)
    assert np.flatnonzero(mask).tolist() == [2, 5, 6, 7]


def test_ties_go_to_the_larger_magnitude_and_not_to_the_first_inputs():
    rng = np.random.default_rng(0)
    layers = PrunableLayers.of([("a", 1, 1000)])
    size = rng.random(1000)
    mask = choose_mask(np.zeros(1000), keep=300, layers=layers, tie_break=size)
    assert set(np.flatnonzero(mask)) == set(np.argsort(-size)[:300])
    # 300 of 1000 at random have a mean index of 499.5 ± 14 (one standard deviation).
    assert abs(np.flatnonzero(mask).mean() - 499.5) < 4 * 14


def test_ties_without_tie_break_go_by_index():
    mask = choose_mask(np.zeros(6), keep=3, layers=PrunableLayers.of([("a", 1, 6)]))
    assert np.flatnonzero(mask).tolist() == [0, 1, 2]


def test_scaling_the_scores_changes_no_mask():
    scores = np.random.default_rng(2).exponential(size=PAPER.num_weights)
    mask = choose_mask(scores, keep=5000, layers=PAPER)
    assert np.array_equal(mask, choose_mask(1e-200 * scores, keep=5000, layers=PAPER))  # 0 in float32
    assert np.array_equal(mask, choose_mask(1e200 * scores, keep=5000, layers=PAPER))  # infinite in float32


def test_keeping_more_never_drops_a_weight():
    scores = np.random.default_rng(3).exponential(size=PAPER.num_weights)
    masks = [choose_mask(scores, keep=keep, layers=PAPER) for keep in (18, 100, 5000, 25_000, 25_168)]
    assert all(np.all(more[less]) for less, more in pairwise(masks))


def test_keeping_all_weights_is_the_dense_model():
    assert choose_mask(np.zeros(PAPER.num_weights), keep=PAPER.num_weights, layers=PAPER).all()


def test_scores_are_left_as_they_were():
    scores = np.random.default_rng(4).exponential(size=PAPER.num_weights)
    before = scores.copy()
    choose_mask(scores, keep=5000, layers=PAPER)
    assert np.array_equal(scores, before)


@given(requests())
def test_layer_shares_are_exact_and_within_one_of_proportional(request):
    layers, keep = request["layers"], request["keep"]
    shares = layer_shares(layers, keep)
    assert sum(shares) == keep
    assert all(layer.out_features <= n <= layer.num_weights for layer, n in zip(layers, shares, strict=True))
    proportional = [keep * layer.num_weights / layers.num_weights for layer in layers]
    if all(layer.out_features <= share for layer, share in zip(layers, proportional, strict=True)):
        assert all(abs(n - share) < 1 for n, share in zip(shares, proportional, strict=True))


def test_layer_shares_by_hand():
    layers = PrunableLayers.of([("a", 1, 50), ("b", 1, 30), ("c", 1, 20)])
    assert layer_shares(layers, 33) == (16, 10, 7)  # 16.5, 9.9, 6.6: the largest remainders round up
    # fc2 needs 10 weights for 10 classes, though its share of 1258 would be 4.
    assert layer_shares(PAPER, 1258) == (1248, 10)


def test_too_few_weights_for_the_output_units_says_how_much_may_be_pruned():
    with pytest.raises(InvalidValue, match=r"keep must be ≥ 18, .* got 17\. Prune less: max_pruning_ratio = 0\.9992"):
        choose_mask(np.ones(PAPER.num_weights), keep=17, layers=PAPER)
    assert (1 - 0.9992) * PAPER.num_weights >= 18


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_refused(bad):
    scores = np.ones(PAPER.num_weights)
    scores[7] = bad
    with pytest.raises(InvalidValue, match=rf"scores must be finite, got {bad} at entry 7.*learning rate"):
        choose_mask(scores, keep=5000, layers=PAPER)
    with pytest.raises(InvalidValue, match="tie_break"):
        choose_mask(np.ones(PAPER.num_weights), keep=5000, layers=PAPER, tie_break=scores)


def test_misuse_names_the_field():
    with pytest.raises(InvalidValue, match="25168"):
        choose_mask(np.ones(5), keep=5, layers=PAPER)
    with pytest.raises(UnknownName, match="did you mean 'layer'"):
        choose_mask(np.ones(PAPER.num_weights), keep=5000, layers=PAPER, scope="layers")


def test_paper_layers_lie_end_to_end_row_by_row():
    fc1, fc2 = PAPER
    assert (PAPER.num_weights, PAPER.num_rows) == (25_168, 18)
    assert (fc1.start, fc2.start) == (0, 25_088)
    flat = np.arange(PAPER.num_weights)
    assert fc2.matrix(flat)[3, 5] == 25_088 + 3 * 8 + 5
    assert PAPER.row_starts[:2].tolist() == [0, 3136] and PAPER.row_starts[-1] == 25_160
    assert PAPER.row_of[25_087:25_089].tolist() == [7, 8]
    assert PAPER.feeds_next(0) and not PAPER.feeds_next(1)


def test_layers_with_gaps_or_without_units_are_refused():
    with pytest.raises(InvalidValue, match="start of b must be 6, got 7"):
        PrunableLayers((PrunableLayer("a", 2, 3, 0), PrunableLayer("b", 1, 2, 7)))
    with pytest.raises(InvalidValue, match="in_features"):
        PrunableLayers.of([("a", 2, 0)])


def test_a_model_without_prunable_layers_has_the_empty_mask():
    assert choose_mask(np.zeros(0), keep=0, layers=PrunableLayers.of([])).shape == (0,)
