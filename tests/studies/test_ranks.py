"""Ranks: simultaneous intervals over all methods of a track, paired by seed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from airprune.studies.league.statistics import (
    Rank,
    half_widths,
    ranks,
    student_quantile,
    studentised_range,
)


@pytest.mark.parametrize(("count", "freedom"), [(2, 4), (3, 8), (10, 36), (25, 96), (75, 296)])
@pytest.mark.parametrize("level", [0.95, 0.975])
def test_the_studentised_range_is_scipys(count, freedom, level):
    expected = stats.studentized_range.ppf(level, count, freedom)
    assert studentised_range(level, count, freedom) == pytest.approx(expected, rel=1e-3)


def test_student_quantiles_are_scipys():
    for level, freedom in ((0.95, 4), (0.999, 9), (0.95 ** (1 / 300), 4)):
        assert student_quantile(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-3)


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_two_methods_have_the_paired_t_interval():
    """Of two methods the residual mean square is half the variance of their differences, and Tukey's q is √2 t."""
    a, b = [0.70, 0.72, 0.69, 0.75, 0.71], [0.68, 0.71, 0.69, 0.70, 0.70]
    low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
    found = half_widths({"a": by_seed(*a), "b": by_seed(*b)})
    assert found["a", "b"] == found["b", "a"] == pytest.approx((high - low) / 2, rel=1e-3)


def test_many_methods_have_tukeys_interval_of_the_randomised_blocks():
    rng = np.random.default_rng(6)  # none of the eight has four times the median variance
    rows = 0.7 + rng.normal(0, 0.02, (1, 5)) + rng.normal(0, 0.01, (8, 5))
    rest = rows - rows.mean(1, keepdims=True) - rows.mean(0) + rows.mean()
    mean_sq = (rest**2).sum() / (7 * 4)
    expected = stats.studentized_range.ppf(0.95, 8, 28) * np.sqrt(mean_sq / 5)
    found = half_widths({f"m{i}": by_seed(*row) for i, row in enumerate(rows)})
    own = {(a, b): np.var(rows[a] - rows[b], ddof=1) / 2 for a, b in itertools.combinations(range(8), 2)}
    for (a, b), variance in own.items():
        wider = np.sqrt(max(1.0, variance / mean_sq))
        assert found[f"m{a}", f"m{b}"] == pytest.approx(expected * wider, rel=1e-3)


def test_a_noisy_method_has_its_own_paired_interval_and_spoils_nobody_elses():
    rng = np.random.default_rng(4)
    quiet = {f"m{i}": by_seed(*(0.7 + rng.normal(0, 0.005, 5))) for i in range(9)}
    noisy = by_seed(0.3, 0.9, 0.5, 0.8, 0.4)
    found = half_widths({**quiet, "noisy": noisy})
    gaps = [noisy[seed] - quiet["m0"][seed] for seed in range(5)]
    critical = stats.t.ppf((1 + 0.975 ** (1 / 9)) / 2, 4)
    assert found["noisy", "m0"] == pytest.approx(critical * np.std(gaps, ddof=1) / np.sqrt(5), rel=1e-3)
    assert found["m0", "m1"] < 0.05 < found["noisy", "m0"]


@pytest.mark.parametrize("deviations", [[0.01] * 12, [0.005] * 6 + [0.01] * 5 + [0.2]])
def test_equal_methods_are_separated_in_at_most_one_league_of_twenty(deviations):
    """400 leagues of twelve methods that differ in nothing but noise; 5 % of them are 20, with three deviations 33."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        rows = rng.normal(0, 0.02, (1, 5)) + rng.normal(0, 1, (12, 5)) * np.array(deviations)[:, None]
        found = ranks({f"m{i}": by_seed(*row) for i, row in enumerate(rows)})
        wrong += any(rank != Rank(best=1, worst=12) for rank in found.values())
    assert wrong <= 33


def test_methods_that_cannot_be_separated_share_a_range_and_the_next_counts_them():
    values = {
        "best": by_seed(0.90, 0.91, 0.92),
        "twin": by_seed(0.91, 0.90, 0.92),
        "worse": by_seed(0.70, 0.71, 0.72),
        "none": {},
    }
    found = ranks(values)
    assert found == {
        "best": Rank(best=1, worst=2),
        "twin": Rank(best=1, worst=2),
        "worse": Rank(best=3, worst=3),
        "none": None,
    }
    assert [str(found[name]) for name in ("best", "worse")] == ["1–2", "3"]


def test_a_noisy_method_never_ranks_above_a_better_quiet_one():
    rng = np.random.default_rng(1)
    for _ in range(50):
        spread = rng.choice([0.003, 0.05, 0.2], 10)
        rows = {f"m{i}": by_seed(*(0.5 + 0.04 * i + rng.normal(0, s, 5))) for i, s in enumerate(spread)}
        found, means = ranks(rows), {name: np.mean(list(row.values())) for name, row in rows.items()}
        for a, b in itertools.permutations(rows, 2):
            if means[a] > means[b]:
                assert not found[a].best > found[b].worst
                assert found[a].worst >= found[a].best


def test_a_single_seed_gives_no_ranks():
    assert ranks({"a": {0: 0.9}, "b": {0: 0.1}}) == {"a": None, "b": None}


def test_a_method_without_all_seeds_is_compared_on_those_it_has():
    values = {f"m{i}": by_seed(*(0.7 + 0.001 * np.arange(5) + 0.0005 * (i % 2))) for i in range(4)}
    found = ranks({**values, "late": {0: 0.1, 1: 0.1001}, "once": {0: 0.2}})
    assert found["once"] == Rank(best=1, worst=6), "one shared seed separates nothing"
    assert found["late"].worst == 6
