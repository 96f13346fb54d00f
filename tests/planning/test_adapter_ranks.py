"""Ranks as a planned quantity: sub-model, bits per weight and share of every device together."""

import dataclasses
import itertools

import numpy as np
import pytest

import airprune as ap
from airprune.errors import InvalidValue
from airprune.planning import Ladder
from airprune.planning.deadline import auto_size_deadline_s
from airprune.planning.multiple_choice import ROUNDING
from airprune.planning.schemes.ranks import RanksScheme

PRUNABLE, FIXED = 8_000, 500


def small_fleet(seed: int, num_devices: int, *, num_edges: int = 1) -> ap.PlanProblem:
    rng = np.random.default_rng(seed)
    ranks = np.sort(rng.choice(np.arange(1, 9), size=3, replace=False))
    bits = np.sort(rng.uniform(0.5, 32.0, 3))
    return ap.PlanProblem(
        full_band_rate_bps=rng.uniform(1e6, 2e7, num_devices),
        seconds_per_weight=rng.uniform(0.0, 4e-7, num_devices),
        edge=np.arange(num_devices) % num_edges,
        conv_weights=FIXED,
        fc_weights=PRUNABLE,
        deadline_s=float(rng.uniform(0.005, 0.06)),
        bits_per_weight=float(bits[0]),
        fixed_bits=float(rng.uniform(0.0, 200.0)),
        extra_seconds=float(rng.uniform(0.0, 1e-3)),
        objective_weight=rng.uniform(0.5, 2.0, num_devices),
        ladder=Ladder(bits, np.sort(rng.uniform(0.0, 0.8, 3))[::-1]),
        sizes=ranks * (PRUNABLE / 8),
    )


def best_by_trying_all(problem: ap.PlanProblem, half: float) -> float:
    """The largest value of one edge over every rank and level of every device, from the equations alone; 0 for none."""
    options = []
    for n in range(problem.num_devices):
        own = []
        for size, (bits, error) in itertools.product(
            problem.sizes, zip(problem.ladder.bits_per_weight, problem.ladder.error, strict=True)
        ):
            weights = FIXED + size
            left_s = problem.deadline_s[n] - problem.seconds_per_weight[n] * weights - problem.extra_seconds[n]
            if left_s > 0.0:
                share = (bits * weights + problem.fixed_bits[n]) / (problem.full_band_rate_bps[n] * left_s)
                worth = size / PRUNABLE * (1 + half) / (size / PRUNABLE + half)
                own.append((share, problem.objective_weight[n] * worth * (1 - error)))
        options.append(own)
    best = 0.0
    for chosen in itertools.product(*options):
        if sum(share for share, _ in chosen) <= 1.0 - ROUNDING:
            best = max(best, sum(value for _, value in chosen))
    return best


def test_plans_have_the_value_of_an_exhaustive_search_on_200_random_fleets():
    feasible = 0
    for seed in range(200):
        problem = small_fleet(seed, 1 + seed % 4)
        half = 0.05 + (seed % 7) / 7
        best, plan = best_by_trying_all(problem, half), ap.plan(problem, "ranks", {"half_share": half})
        if best == 0.0:
            assert plan.failed.all()
            continue
        feasible += 1
        assert plan.value.sum() == pytest.approx(best, rel=1e-9)  # a gap of one option would be far larger
        assert plan.value_bound.sum() == pytest.approx(best, rel=1e-9)
    assert feasible > 100


def test_plans_meet_the_deadline_and_use_the_bandwidth_once():
    problem = small_fleet(3, 12, num_edges=3)
    problem = dataclasses.replace(problem, deadline_s=0.2)
    plan = ap.plan(problem, "ranks")
    assert not plan.failed.any()
    assert np.all(plan.latency_s <= problem.deadline_s * (1 + 1e-9))
    assert np.all(problem.groups.sum(plan.bandwidth_share) <= 1.0)


def test_planned_sizes_are_among_those_of_the_masking():
    plan = ap.plan(dataclasses.replace(small_fleet(5, 6), deadline_s=0.1), "ranks")
    assert set(plan.kept_fc_weights.tolist()) <= set(plan.problem.sizes.astype(int).tolist())


def test_with_time_to_spare_all_send_the_largest_at_the_most_bits():
    problem = dataclasses.replace(small_fleet(7, 4), deadline_s=1e4)
    plan = ap.plan(problem, "ranks")
    assert np.all(plan.kept_fc_weights == problem.sizes[-1])
    assert np.all(plan.bits_per_weight == problem.ladder.bits_per_weight[-1])
    assert np.all(plan.shadow_price == 0.0)


def test_a_deadline_below_the_smallest_is_infeasible_and_that_one_is_not():
    problem = small_fleet(9, 4)
    least_s = float(ap.plan(problem, "ranks").min_deadline_s[0])
    for factor, fails in ((0.999, True), (1.001, False)):
        plan = ap.plan(dataclasses.replace(problem, deadline_s=least_s * factor), "ranks")
        assert plan.failed.all() == fails


def test_the_automatic_deadline_has_more_value_per_second_than_others():
    scheme, problem = RanksScheme(), small_fleet(11, 8, num_edges=2)
    beside_s = 0.004

    def value_per_s(deadline_s: float) -> float:
        plan = scheme.draft(dataclasses.replace(problem, deadline_s=deadline_s))
        return 0.0 if plan.failed.any() else plan.value.sum() / (plan.latency_s + beside_s).max()

    found_s = auto_size_deadline_s(problem, scheme.draft, beside_s=beside_s)
    assert value_per_s(found_s) >= 0.97 * max(map(value_per_s, np.geomspace(found_s / 10, found_s * 10, 400)))


def test_sizes_must_ascend_and_fit():
    for sizes in ([2_000, 1_000], [1_000, PRUNABLE + 1]):
        with pytest.raises(InvalidValue, match=r"PlanProblem\.sizes"):
            dataclasses.replace(small_fleet(0, 2), sizes=sizes)


def test_without_sizes_the_scheme_is_air_budget():
    problem = dataclasses.replace(small_fleet(2, 3), sizes=None, deadline_s=0.1)
    ranks, budget = ap.plan(problem, "ranks"), ap.plan(problem, "air-budget")
    assert np.array_equal(ranks.bandwidth_share, budget.bandwidth_share)
