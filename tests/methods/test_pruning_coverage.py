"""Coverage says how many devices trained each weight."""

import numpy as np
import pytest

from airprune.errors import InvalidValue
from airprune.methods.masking.core.coverage import coverage_of


def test_coverage_by_hand():
    coverage = coverage_of(np.array([0, 3, 2, 2, 0, 5]), 5)
    assert coverage.histogram == (2, 0, 2, 1, 0, 1)
    assert (coverage.min_count, coverage.num_uncovered) == (2, 2)


def test_without_pruning_every_weight_is_covered_by_all():
    coverage = coverage_of(np.full(100, 5), 5)
    assert (coverage.min_count, coverage.num_uncovered) == (5, 0)


def test_a_round_without_devices_covers_nothing():
    coverage = coverage_of(np.zeros(4, dtype=int), 0)
    assert (coverage.min_count, coverage.num_uncovered) == (0, 4)


@pytest.mark.parametrize("bad", [[-1, 0], [0, 4], [0.5, 1.0], [np.nan, 1.0]])
def test_impossible_counts_are_refused(bad):
    with pytest.raises(InvalidValue, match=r"counts must be whole numbers in \[0, 3\]"):
        coverage_of(bad, 3)


def test_counts_may_come_as_floats():
    assert coverage_of(np.array([1.0, 3.0], dtype=np.float32), 3) == coverage_of([1, 3], 3)
