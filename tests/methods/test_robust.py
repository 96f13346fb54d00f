"""Robust aggregations: hand-computed values, what they share with the mean, and how far one child can move them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airprune.methods.aggregation import AGGREGATIONS, kept_models
from airprune.methods.aggregation.robust import Robust

ROBUST = [name for name in AGGREGATIONS if issubclass(AGGREGATIONS[name], Robust)]
COORDINATE_WISE = ["trimmed-mean", "median"]


def combined(name, updates, previous=None, masks=None, frozen=None, **options):
    """Returns the update of the parent's model, given those of its children."""
    updates = np.asarray(updates, dtype=np.float64)
    previous = np.zeros(updates.shape[1]) if previous is None else np.asarray(previous, dtype=np.float64)
    aggregation = AGGREGATIONS[name](**options)
    total = aggregation.Sum.zeros(len(previous), slice(0, len(previous)))
    masks = [None] * len(updates) if masks is None else np.asarray(masks, dtype=bool)
    for n, (update, mask) in enumerate(zip(updates, masks, strict=True)):
        model = previous + update
        total.add(model if mask is None else np.where(mask, model, 0.0), mask)
        if frozen is not None and frozen[n] is not None:
            total.leave_out(np.asarray(frozen[n], dtype=bool), 1.0)
    return aggregation.finish(total, previous) - previous


def test_robust_aggregations_are_five():
    assert ROBUST == ["norm-clip", "trimmed-mean", "median", "krum", "geometric-median"]


def test_trimmed_mean_drops_the_extremes_of_each_weight():
    updates = [[1.0, 5.0], [2.0, -90.0], [3.0, 7.0], [4.0, 6.0], [100.0, 8.0]]
    assert combined("trimmed-mean", updates, trim=0.2) == pytest.approx([3.0, 6.0], rel=1e-15)
    assert combined("trimmed-mean", updates, trim=0.4) == pytest.approx([3.0, 6.0], rel=1e-15)


def test_trimmed_mean_rounds_what_it_drops_up():
    # 20 % of four values is one at either end; of six, two.
    assert combined("trimmed-mean", [[0.0], [2.0], [4.0], [9.0]], trim=0.2) == pytest.approx([3.0])
    assert combined("trimmed-mean", [[0.0], [1.0], [2.0], [4.0], [9.0], [9.0]], trim=0.2) == pytest.approx([3.0])


def test_median_of_an_even_number_is_the_mean_of_two():
    assert combined("median", [[1.0], [2.0], [3.0], [100.0]]).tolist() == [2.5]
    assert combined("median", [[1.0], [2.0], [100.0]], previous=[10.0]).tolist() == [2.0]


POINTS = [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [50.0, 50.0]]


@pytest.mark.parametrize(("keep", "expected"), [(1, (0.0, 0.0)), (2, (0.5, 0.0)), (3, (1 / 3, 2 / 3))])
def test_krum_takes_the_updates_nearest_to_their_neighbours(keep, expected):
    # f = 1 of 5, two neighbours: the sums of squared distances are 1 + 4, 1 + 5, 4 + 5, 10 + 13 and far more.
    assert combined("krum", POINTS, keep=keep) == pytest.approx(expected, abs=1e-15)


def test_krum_takes_a_weight_from_the_best_child_that_sent_it():
    masks = np.ones((5, 2), dtype=bool)
    masks[0, 1] = False
    # Child 0 is compared on the first weight alone. Squared distances, each a mean over the shared weights:
    # 0–1: 1, 0–2: 0, 0–3: 9, 1–2: 5/2, 1–3: 13/2, 2–3: 5; so the scores are 0 + 1, 1 + 5/2, 0 + 5/2, 5 + 13/2.
    # Child 0 has the lowest; of those that sent the second weight, child 2.
    assert combined("krum", POINTS, masks=masks) == pytest.approx([0.0, 2.0], abs=1e-15)


def test_geometric_median_of_a_convex_quadrilateral_is_where_its_diagonals_meet():
    corners = [[0.0, 0.0], [0.0, 2.0], [4.0, 4.0], [3.0, 0.0]]
    assert combined("geometric-median", corners, iterations=300) == pytest.approx([1.2, 1.2], abs=1e-6)


def test_geometric_median_of_points_on_a_line_is_the_middle_one():
    line = np.outer([0.0, 1.0, 10.0], [3.0, 4.0])
    assert combined("geometric-median", line) == pytest.approx([3.0, 4.0], abs=1e-4)  # ν is a millionth


def test_geometric_median_of_equal_updates_is_that_update():
    assert combined("geometric-median", [[2.0, 1.0]] * 4 + [[9.0, 9.0]]) == pytest.approx([2.0, 1.0], abs=1e-9)


def test_norm_clip_shortens_long_updates_to_the_median_length():
    updates = [[3.0, 4.0], [6.0, 8.0], [30.0, 40.0]]  # 5, 10 and 50 long
    assert combined("norm-clip", updates) == pytest.approx([5.0, 20.0 / 3.0], rel=1e-14)
    assert combined("norm-clip", updates, clip=2.0) == pytest.approx([7.0, 28.0 / 3.0], rel=1e-14)


@pytest.mark.parametrize("name", ROBUST)
def test_below_three_contributors_only_the_clip_applies(name):
    two = [[3.0, 4.0], [-30.0, -40.0]]
    assert combined(name, two) == pytest.approx([0.0, 0.0], abs=1e-15)  # the longer is as long as the shorter
    assert combined(name, two, clip=None) == pytest.approx([-13.5, -18.0], rel=1e-15)
    assert combined(name, [[3.0, 4.0]]) == pytest.approx([3.0, 4.0], rel=1e-15)


@pytest.mark.parametrize("name", ROBUST)
def test_a_weight_is_judged_among_the_children_that_sent_it(name):
    updates = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 9.0, 0.0], [1.0, 9.0, 0.0]]
    masks = [[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 0, 0]]
    found = combined(name, updates, previous=[5.0, 5.0, 5.0], masks=masks)
    assert found == pytest.approx([1.0, 1.0, 1.0], rel=1e-12)


@pytest.mark.parametrize("name", ROBUST)
def test_a_weight_that_no_child_sent_stays(name):
    found = combined(name, [[1.0, 7.0]] * 3, previous=[0.25, 0.75], masks=[[1, 0]] * 3)
    assert found.tolist() == [1.0, 0.0]
    frozen = combined(name, [[1.0, 7.0]] * 3, previous=[0.25, 0.75], frozen=[[0, 1]] * 3)
    assert frozen.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("name", ROBUST)
def test_an_update_that_is_not_finite_does_not_count(name, bad):
    good = np.random.default_rng(0).normal(size=(4, 6))
    assert np.array_equal(combined(name, [*good, np.full(6, bad)]), combined(name, good))


@pytest.mark.parametrize("name", ROBUST)
def test_nothing_but_bad_updates_leaves_the_model(name):
    with np.errstate(invalid="ignore"):
        assert combined(name, np.full((3, 2), np.nan), previous=[1.0, 2.0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ROBUST)
def test_blocks_and_merged_parts_do_not_change_the_result(name, monkeypatch):
    rng = np.random.default_rng(1)
    updates, masks = rng.normal(size=(7, 50)), rng.random((7, 50)) < 0.7
    whole = combined(name, updates, masks=masks)
    monkeypatch.setattr(kept_models, "_BLOCK", 7 * 8)
    assert combined(name, updates, masks=masks) == pytest.approx(whole, rel=1e-12, abs=1e-15)
    aggregation = AGGREGATIONS[name]()
    parts = []
    for rows in (slice(0, 3), slice(3, 7)):
        part = aggregation.Sum.zeros(50, slice(0, 50))
        for update, mask in zip(updates[rows], masks[rows], strict=True):
            part.add(np.where(mask, update, 0.0), mask)
        parts.append(part.copy())
    parts[0].merge(parts[1])
    assert aggregation.finish(parts[0], np.zeros(50)) == pytest.approx(whole, rel=1e-12, abs=1e-15)


numbers = st.floats(-10, 10, allow_subnormal=False, width=32)
fleets = st.integers(5, 9).flatmap(
    lambda n: st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=n, max_size=n)
)


@settings(max_examples=40, deadline=None)
@given(fleets, st.randoms(use_true_random=False))
def test_the_order_of_the_children_does_not_matter(updates, random):
    shuffled = random.sample(updates, len(updates))
    for name in ROBUST:
        if name == "krum":  # children with the same score are equally central, but not the same
            scores = AGGREGATIONS[name]().judge(kept(updates))
            if np.min(np.diff(np.sort(scores)), initial=np.inf) < 1e-9:
                continue
        tolerance = 1e-6 if name == "geometric-median" else 1e-12
        assert combined(name, shuffled) == pytest.approx(combined(name, updates), rel=tolerance, abs=tolerance)


def kept(updates):
    total = kept_models.KeptModels.zeros(3, slice(0, 3))
    for update in updates:
        total.add(np.array(update), None)
    return total.updates(np.zeros(3))


@settings(max_examples=40, deadline=None)
@given(fleets)
def test_with_nothing_to_trim_they_are_the_mean(updates):
    mean = np.mean(updates, axis=0)
    for name, options in {
        "norm-clip": {"clip": None},
        "trimmed-mean": {"trim": 0.0},
        "krum": {"keep": len(updates)},
    }.items():
        assert combined(name, updates, **options) == pytest.approx(mean, rel=1e-12, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(fleets, st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3))
def test_one_child_moves_them_by_a_bounded_amount(updates, lie):
    honest = np.array(updates)
    low, high, longest = honest.min(axis=0), honest.max(axis=0), np.sqrt(np.square(honest).mean(axis=1)).max()
    poisoned = [*updates, lie]
    for name in COORDINATE_WISE:  # inside what honest children sent
        found = combined(name, poisoned)
        assert np.all(found >= low - 1e-9) and np.all(found <= high + 1e-9)
    clipped = combined("norm-clip", poisoned)
    assert np.sqrt(np.square(clipped).mean()) <= longest * (1 + 1e-9)
    # With one liar of n, the geometric median is at most 2 (n − 1) / (n − 2) times as long as the longest honest one.
    num = len(poisoned)
    centre = combined("geometric-median", poisoned, iterations=30)
    assert np.sqrt(np.square(centre).mean()) <= 2.0 * (num - 1) / (num - 2) * longest * 1.01 + 1e-9
    # A far liar is never the most central: the one that Krum takes was sent by an honest child.
    if np.sqrt(np.square(lie).mean()) > 10 * longest:
        assert any(np.allclose(combined("krum", poisoned), one) for one in updates)
