"""Coverage says how many devices trained each weight."""

import numpy as np
import pytest

from airprune.errors import InvalidValue
from airprune.methods.masking.core import Coverage, PrunableLayers, choose_mask, coverage_of


def test_coverage_by_hand():
    coverage = coverage_of(np.array([0, 3, 2, 2, 0, 5]), 5)
    assert coverage.histogram == (2, 0, 2, 1, 0, 1)
    assert (coverage.min_count, coverage.num_uncovered, coverage.mean_count) == (2, 2, 2.0)


def test_without_pruning_every_weight_is_covered_by_all():
    coverage = coverage_of(np.full(100, 5), 5)
    assert (coverage.min_count, coverage.num_uncovered, coverage.mean_count) == (5, 0, 5.0)


def test_a_round_without_devices_covers_nothing():
    coverage = coverage_of(np.zeros(4, dtype=int), 0)
    assert (coverage.min_count, coverage.num_uncovered, coverage.mean_count) == (0, 4, 0.0)


def test_mean_count_is_the_sum_of_kept_shares():
    layers = PrunableLayers.of([("a", 4, 50)])
    rng = np.random.default_rng(0)
    keeps = (40, 100, 180)
    counts = sum(choose_mask(rng.random(200), keep=keep, layers=layers).astype(int) for keep in keeps)
    assert coverage_of(counts, 3).mean_count == pytest.approx(sum(keeps) / 200, rel=1e-15)


def test_merging_rounds_is_counting_them_together():
    rng = np.random.default_rng(1)
    first, second = rng.integers(0, 6, size=300), rng.integers(2, 6, size=300)
    merged = coverage_of(first, 5).merged_with(coverage_of(second, 5))
    assert merged == coverage_of(np.concatenate([first, second]), 5)
    assert merged.num_counted == 600


def test_merged_minimum_is_the_smaller_one():
    low, high = coverage_of([0, 2, 3], 3), coverage_of([3, 3, 3], 3)
    assert low.merged_with(high).min_count == high.merged_with(low).min_count == 2


def test_edges_with_different_numbers_of_devices_merge():
    merged = coverage_of([1, 2], 2).merged_with(coverage_of([4, 0], 4))
    assert merged == Coverage(histogram=(1, 1, 1, 0, 1))


@pytest.mark.parametrize("bad", [[-1, 0], [0, 4], [0.5, 1.0], [np.nan, 1.0]])
def test_impossible_counts_are_refused(bad):
    with pytest.raises(InvalidValue, match=r"counts must be whole numbers in \[0, 3\]"):
        coverage_of(bad, 3)


def test_counts_may_come_as_floats():
    assert coverage_of(np.array([1.0, 3.0], dtype=np.float32), 3) == coverage_of([1, 3], 3)
