"""Means over seeds and their intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from airprune.results.statistics import Estimate


@pytest.mark.parametrize("count", [2, 3, 5, 10, 16, 17, 30, 100, 1000])
def test_interval_is_student_t(count):
    values = np.random.default_rng(count).normal(3.0, 2.0, count)
    estimate = Estimate.of(list(values))
    low, high = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert estimate.mean == pytest.approx(values.mean(), rel=1e-12)
    assert estimate.half_width == pytest.approx((high - low) / 2, rel=1e-3)  # quantiles to four digits


def test_one_seed_has_no_interval():
    assert Estimate.of([2.0]).mean == 2.0 and math.isnan(Estimate.of([2.0]).half_width)
