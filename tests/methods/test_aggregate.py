"""Eqs. (12) and (13): averages over those who kept a weight."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import airprune as ap
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.models.catalogue import FlatModel
from airprune.rounds.cloud import combine_children


def by_hand(values, masks, previous, weights):
    """A dense loop over weights and devices, written from Eq. (12)."""
    result = []
    for j in range(values.shape[1]):
        keepers = [n for n in range(len(values)) if masks[n, j]]
        if not keepers:
            result.append(previous[j])
            continue
        result.append(sum(weights[n] * values[n, j] for n in keepers) / sum(weights[n] for n in keepers))
    return np.array(result)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_masked_average_equals_a_dense_per_weight_loop(seed, weighted):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 8)), int(rng.integers(1, 30)))
    values, previous = rng.normal(size=shape), rng.normal(size=shape[1])
    masks = rng.random(shape) < rng.random()
    weights = rng.uniform(0.5, 5, shape[0]) if weighted else np.ones(shape[0])
    result = ap.aggregate(values, masks, previous, weights=weights if weighted else None)
    np.testing.assert_allclose(result, by_hand(values, masks, previous, weights), rtol=1e-12, atol=1e-15)


def test_a_weight_kept_by_nobody_keeps_its_previous_value():
    result = ap.aggregate(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1, 0], [1, 0]]), np.array([9.0, 7.0]))
    assert list(result) == [2.0, 7.0]


def test_values_outside_the_mask_do_not_matter():
    masks = np.array([[True, False], [True, True]])
    clean = ap.aggregate(np.array([[1.0, 0.0], [3.0, 4.0]]), masks, np.zeros(2))
    dirty = ap.aggregate(np.array([[1.0, np.nan], [3.0, 4.0]]), masks, np.zeros(2))
    np.testing.assert_array_equal(clean, dirty)


def test_full_masks_give_the_plain_mean():
    values = np.random.default_rng(0).normal(size=(5, 7))
    result = ap.aggregate(values, np.ones((5, 7)), np.zeros(7))
    np.testing.assert_allclose(result, values.mean(0), rtol=1e-13)


def test_chunks_merged_in_order_equal_one_pass_to_the_bit():
    rng = np.random.default_rng(1)
    states = rng.normal(size=(6, 10)).astype(np.float32)
    masks = rng.random((6, 6)) < 0.5
    prunable = slice(2, 8)
    masks[2] = True  # one device that pruned nothing
    states[:, prunable] *= masks

    def total(first: int, last: int) -> MaskedSum:
        part = MaskedSum.zeros(10, prunable)
        for n in range(first, last):
            part.add(states[n], masks[n] if n != 2 else None)
        return part

    twice = total(0, 3)
    twice.merge(total(3, 6))
    again = total(0, 3)
    again.merge(total(3, 6))
    assert twice.mean(np.zeros(10, np.float32)).tobytes() == again.mean(np.zeros(10, np.float32)).tobytes()
    np.testing.assert_array_equal(twice.kept_by, masks.sum(0))
    full = np.ones((6, 10), dtype=bool)
    full[:, prunable] = masks
    expected = ap.aggregate(states, full, np.zeros(10, np.float32))
    np.testing.assert_allclose(twice.mean(np.zeros(10, np.float32)), expected, rtol=1e-6)  # float32 result


def test_a_sum_counts_who_was_added_from_nobody_on():
    """Coverage is Γ over this count, and an edge that nobody reached must know it."""
    empty = MaskedSum.zeros(4, slice(1, 4))
    assert (empty.all_count, empty.all_weight, empty.dense_count, empty.dense_weight) == (0, 0.0, 0, 0.0)
    assert empty.weight.tolist() == [0.0] * 4 and empty.kept_by.tolist() == [0] * 3
    assert empty.mean(np.array([1.0, 2.0, 3.0, 4.0])).tolist() == [1.0, 2.0, 3.0, 4.0]
    total = MaskedSum.zeros(4, slice(1, 4))
    total.add(np.ones(4), None, 2.0)
    total.add(np.array([1.0, 1.0, 0.0, 0.0]), np.array([True, False, False]), 3.0)
    assert (total.all_count, total.all_weight, total.dense_count, total.dense_weight) == (2, 5.0, 1, 2.0)
    total.merge(total.copy())
    assert (total.all_count, total.all_weight, total.dense_count, total.dense_weight) == (4, 10.0, 2, 4.0)
    assert total.weight.tolist() == [10.0, 10.0, 4.0, 4.0] and total.kept_by.tolist() == [4, 2, 2]


def test_the_cloud_averages_edges_alike_or_by_their_data():
    edges, shape = np.array([[1.0, 2.0], [3.0, 6.0]]), FlatModel(torch.nn.Linear(2, 1, bias=False)).shape
    for name, expected in (("masked-mean", [2.0, 4.0]), ("data-weighted", [1.5, 3.0])):
        assert combine_children(AGGREGATIONS[name](), edges, np.array([3, 1]), np.zeros(2), shape).tolist() == expected


def test_wrong_shapes_are_refused_with_the_shapes():
    with pytest.raises(ap.InvalidValue, match=r"\(2, 3\), \(2, 2\)"):
        ap.aggregate(np.zeros((2, 3)), np.ones((2, 2)), np.zeros(3))
