"""Structured pruning removes whole units: the rest are smaller dense layers that compute the same."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from airprune.components.layers import PrunableLayers
from airprune.errors import InvalidValue
from airprune.methods.masking.core.structured import choose_units, structured_count, unit_keep_for

PAPER = PrunableLayers.of([("fc1", 8, 3136), ("fc2", 10, 8)])
CHAIN = PrunableLayers.of([("fc1", 12, 20), ("fc2", 9, 12), ("fc3", 4, 9)])
APART = PrunableLayers.of([("head", 6, 5), ("tail", 3, 7)])  # 6 outputs do not fit 7 inputs


def named(shapes) -> PrunableLayers:
    return PrunableLayers.of([(f"fc{i}", out, into) for i, (out, into) in enumerate(shapes)])


loose = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4).map(named)
chains = st.lists(st.integers(1, 12), min_size=2, max_size=5).map(
    lambda widths: named((out, into) for into, out in pairwise(widths))
)


def some_scores(layers: PrunableLayers, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=layers.num_weights)


def test_count_is_eq_3_by_hand():
    assert structured_count(PAPER, 0.5) == 1568 * 4 + 4 * 10
    assert structured_count(PAPER, 0.3) == 941 * 3 + 3 * 10  # ⌈940.8⌉, ⌈2.4⌉
    assert structured_count(CHAIN, 0.5) == 10 * 6 + 6 * 5 + 5 * 4
    assert structured_count(PAPER, 1.0) == 25_168


@given(st.one_of(loose, chains), st.data())
def test_unit_keep_is_the_largest_whose_count_fits(layers, data):
    keep = data.draw(st.integers(structured_count(layers, 1e-6), layers.num_weights))
    kappa = unit_keep_for(layers, keep)
    assert structured_count(layers, kappa) <= keep
    # Any larger κ takes one unit more somewhere; 1e-6 is below the gap between breakpoints i / n, n ≤ 12.
    assert kappa == 1.0 or structured_count(layers, kappa + 1e-6) > keep


@pytest.mark.parametrize("keep", [11, 1258, 6312, 12_584, 25_167])
def test_unit_keep_of_the_paper_model_is_the_largest_on_a_fine_grid(keep):
    kappa = unit_keep_for(PAPER, keep)
    assert structured_count(PAPER, kappa) <= keep
    # Half the gap between breakpoints: all are multiples of 1 / 3136.
    assert structured_count(PAPER, kappa + 0.5 / 3136) > keep


def test_unit_keep_of_all_weights_is_one():
    assert unit_keep_for(PAPER, 25_168) == 1.0
    assert choose_units(some_scores(PAPER), keep=25_168, layers=PAPER).mask.all()


@given(st.one_of(loose, chains), st.data())
def test_asking_for_the_count_that_was_kept_keeps_the_same(layers, data):
    keep = data.draw(st.integers(structured_count(layers, 1e-6), layers.num_weights))
    kappa = unit_keep_for(layers, keep)
    assert unit_keep_for(layers, structured_count(layers, kappa)) == kappa


@given(st.one_of(loose, chains), st.integers(0, 9), st.data())
def test_mask_is_the_outer_product_of_kept_units(layers, seed, data):
    keep = data.draw(st.integers(structured_count(layers, 1e-6), layers.num_weights))
    units = choose_units(some_scores(layers, seed), keep=keep, layers=layers)
    for layer, outputs, inputs in zip(layers, units.kept_outputs, units.kept_inputs, strict=True):
        expected = np.outer(np.isin(np.arange(layer.out_features), outputs), np.isin(range(layer.in_features), inputs))
        assert np.array_equal(layer.matrix(units.mask), expected)
        assert inputs.size == max(1, math.ceil(units.unit_keep * layer.in_features - 1e-9))
    assert units.kept_weights == np.count_nonzero(units.mask) == structured_count(layers, units.unit_keep) <= keep


@given(st.one_of(loose, chains), st.data())
def test_class_outputs_are_never_removed(layers, data):
    keep = data.draw(st.integers(structured_count(layers, 1e-6), layers.num_weights))
    units = choose_units(some_scores(layers), keep=keep, layers=layers)
    assert units.kept_outputs[-1].tolist() == list(range(layers.layers[-1].out_features))
    assert np.all(layers.layers[-1].matrix(units.mask).any(axis=1))


def test_kept_outputs_are_the_next_layers_inputs():
    units = choose_units(some_scores(CHAIN), keep=120, layers=CHAIN)
    for before, after in ((0, 1), (1, 2)):
        assert np.array_equal(units.kept_outputs[before], units.kept_inputs[after])


def test_layers_that_do_not_fit_choose_their_units_apart():
    units = choose_units(some_scores(APART), keep=20, layers=APART)
    assert units.kept_outputs[0].size == math.ceil(units.unit_keep * 6)
    assert units.kept_inputs[1].size == math.ceil(units.unit_keep * 7)


def test_units_with_the_highest_sums_stay():
    layers = PrunableLayers.of([("a", 3, 2), ("b", 2, 3)])
    scores = np.concatenate([[[1, 2], [0, 0], [3, 1]], [[0, 9, 0], [0, 9, 0]]], axis=None).astype(float)
    # Hidden units: 3 + 0, 0 + 18 and 4 + 0; inputs 4 and 3. κ = 2/3 keeps two hidden units and both inputs.
    units = choose_units(scores, keep=8, layers=layers)
    assert units.kept_outputs[0].tolist() == [1, 2] and units.kept_inputs[0].tolist() == [0, 1]
    assert units.mask.astype(int).tolist() == [0, 0, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1]


def test_equal_units_go_by_tie_break():
    layers = PrunableLayers.of([("a", 1, 4)])
    units = choose_units(np.zeros(4), keep=2, layers=layers, tie_break=np.array([0.1, 0.3, 0.2, 0.4]))
    assert units.kept_inputs[0].tolist() == [1, 3]


@pytest.mark.parametrize("keep", [40, 150, 260, CHAIN.num_weights])
def test_small_dense_layers_compute_what_the_masked_layers_compute(keep):
    rng = np.random.default_rng(6)
    weights = rng.normal(size=CHAIN.num_weights)
    biases = [torch.from_numpy(rng.normal(size=layer.out_features)) for layer in CHAIN]
    x = torch.from_numpy(rng.normal(size=(32, 20)))
    units = choose_units(np.abs(weights), keep=keep, layers=CHAIN)

    def forward(x, matrices, biases):
        activations = []
        for i, (matrix, bias) in enumerate(zip(matrices, biases, strict=True)):
            x = torch.nn.functional.linear(x, torch.from_numpy(matrix), bias)
            x = x if i == len(biases) - 1 else torch.relu(x)
            activations.append(x)
        return activations

    # A removed unit goes with its bias, so its activation is 0.
    stays = [
        torch.from_numpy(np.isin(np.arange(b.numel()), o)) for b, o in zip(biases, units.kept_outputs, strict=True)
    ]
    masked = [layer.matrix(weights * units.mask) for layer in CHAIN]
    full = forward(x, masked, [b * s for b, s in zip(biases, stays, strict=True)])
    kept = zip(CHAIN, units.kept_outputs, units.kept_inputs, strict=True)
    small = forward(
        x[:, units.kept_inputs[0]],
        [layer.matrix(weights)[np.ix_(o, i)] for layer, o, i in kept],
        [b[o] for b, o in zip(biases, units.kept_outputs, strict=True)],
    )
    for wide, narrow, kept in zip(full, small, stays, strict=True):
        assert torch.all(wide[:, ~kept] == 0.0)
        torch.testing.assert_close(wide[:, kept], narrow, rtol=1e-12, atol=1e-12)  # order of summation
    # With its bias left in, the unit is active but nothing reads it.
    torch.testing.assert_close(forward(x, masked, biases)[-1], small[-1], rtol=1e-12, atol=1e-12)


def test_misuse_names_the_field():
    with pytest.raises(InvalidValue, match=r"keep must be ≥ 11, one unit per layer and every class, got 10"):
        choose_units(some_scores(PAPER), keep=10, layers=PAPER)
    with pytest.raises(InvalidValue, match=r"scores must be finite"):
        choose_units(np.full(PAPER.num_weights, np.nan), keep=5000, layers=PAPER)
    with pytest.raises(InvalidValue, match=r"unit_keep"):
        structured_count(PAPER, 0.0)
