"""What must hold for any fleet: symmetries, units, monotonicity, feasibility."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import airprune as ap
from airprune.planning.tradeoff import share_for_weights
from support.fleets import paper_fleet, random_fleet, share_needed

SEED = st.integers(0, 2**32 - 1)
RESERVED = st.booleans()  # whether fixed bits and extra seconds are part of the fleet
# Ratios of two optima agree to the rounding of W(b) / W_fully, whose worst case here is conv/fc = 1e4 ulps.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def fleet(seed: int, reserved: bool = False, num_edges: int = 3) -> ap.PlanProblem:
    rng = np.random.default_rng(seed)
    return random_fleet(rng, num_devices=int(rng.integers(1, 40)), num_edges=num_edges, reserved=reserved)


def total(plan: ap.Plan) -> np.ndarray:
    """Σ c ρ per edge."""
    problem = plan.problem
    edge = np.searchsorted(problem.edge_ids, problem.edge)
    return np.bincount(edge, problem.objective_weight * plan.pruning_ratio)


@given(SEED, RESERVED)
def test_relabelling_devices_relabels_the_plan(seed, reserved):
    problem = fleet(seed, reserved)
    order = np.random.default_rng(seed).permutation(problem.num_devices)
    plan, relabelled = ap.plan(problem), ap.plan(problem.subset(order))
    np.testing.assert_allclose(relabelled.pruning_ratio, plan.pruning_ratio[order], **CLOSE)
    np.testing.assert_allclose(relabelled.bandwidth_share, plan.bandwidth_share[order], rtol=1e-6, atol=1e-9)


@given(SEED, RESERVED)
def test_renaming_edges_renames_the_plan(seed, reserved):
    problem = fleet(seed, reserved)
    renamed = ap.plan(dataclasses.replace(problem, edge=-7 * problem.edge))
    np.testing.assert_allclose(renamed.pruning_ratio, ap.plan(problem).pruning_ratio, **CLOSE)
    assert list(renamed.problem.edge_ids) == sorted(-7 * problem.edge_ids)


@given(SEED, RESERVED)
def test_edges_are_planned_independently(seed, reserved):
    problem = fleet(seed, reserved)
    together = ap.plan(problem)
    for k, edge in enumerate(problem.edge_ids):
        alone = ap.plan(problem.subset(problem.edge == edge))
        np.testing.assert_allclose(together.pruning_ratio[problem.edge == edge], alone.pruning_ratio, **CLOSE)
        assert together.min_deadline_s[k] == alone.min_deadline_s[0]


@given(SEED, RESERVED, st.sampled_from([2.0**-20, 2.0**-3, 2.0**10, 2.0**30]))
def test_the_unit_of_time_does_not_matter(seed, reserved, scale):
    """Powers of two, so that rescaling itself does not round."""
    problem = fleet(seed, reserved)
    rescaled = dataclasses.replace(
        problem,
        deadline_s=problem.deadline_s * scale,
        seconds_per_weight=problem.seconds_per_weight * scale,
        extra_seconds=problem.extra_seconds * scale,
        full_band_rate_bps=problem.full_band_rate_bps / scale,
    )
    np.testing.assert_array_equal(ap.plan(rescaled).pruning_ratio, ap.plan(problem).pruning_ratio)


@given(SEED, RESERVED, st.sampled_from([2.0**-10, 8.0, 2.0**20]))
def test_the_unit_of_information_does_not_matter(seed, reserved, scale):
    problem = fleet(seed, reserved)
    rescaled = dataclasses.replace(
        problem,
        bits_per_weight=problem.bits_per_weight * scale,
        fixed_bits=problem.fixed_bits * scale,
        full_band_rate_bps=problem.full_band_rate_bps * scale,
    )
    np.testing.assert_allclose(ap.plan(rescaled).pruning_ratio, ap.plan(problem).pruning_ratio, **CLOSE)


@given(SEED, RESERVED, st.floats(1.0, 100.0))
def test_more_time_never_prunes_any_device_more(seed, reserved, factor):
    """With equal extra seconds; unequal ones can break it, as the next test shows."""
    problem = fleet(seed, reserved)
    extra = problem.extra_seconds.max()
    problem = dataclasses.replace(problem, extra_seconds=extra, deadline_s=problem.deadline_s + extra)
    longer = dataclasses.replace(problem, deadline_s=problem.deadline_s * factor)
    assert np.all(ap.plan(longer).pruning_ratio <= ap.plan(problem).pruning_ratio + 1e-9)


def test_more_time_moves_band_to_a_device_that_extra_seconds_held_up():
    """1 ms more doubles the time that device 1 has for its weights: band is worth more to it, and device 0 loses."""
    problem = ap.PlanProblem(
        full_band_rate_bps=[2e7, 5e8], seconds_per_weight=2e-7, conv_weights=0, extra_seconds=[0.0, 0.029]
    )
    short, longer = ap.plan(problem), ap.plan(dataclasses.replace(problem, deadline_s=0.031))
    assert longer.pruning_ratio[0] > short.pruning_ratio[0] and longer.pruning_ratio[1] < short.pruning_ratio[1]
    assert longer.pruning_ratio.sum() < short.pruning_ratio.sum()


@given(SEED, RESERVED, st.floats(1.0, 100.0))
def test_more_band_never_prunes_any_device_more(seed, reserved, factor):
    problem = fleet(seed, reserved)
    wider = dataclasses.replace(problem, full_band_rate_bps=problem.full_band_rate_bps * factor)
    assert np.all(ap.plan(wider).pruning_ratio <= ap.plan(problem).pruning_ratio + 1e-9)


@given(SEED, RESERVED)
def test_more_devices_never_help_the_others(seed, reserved):
    problem = fleet(seed, reserved, num_edges=1)
    everyone = ap.plan(problem)
    without_last = ap.plan(problem.subset(np.arange(max(1, problem.num_devices - 1))))
    others = everyone.pruning_ratio[: len(without_last.pruning_ratio)]
    assert np.all(without_last.pruning_ratio <= others + 1e-9)


@given(SEED, RESERVED, st.floats(0.2, 3.0))
def test_a_plan_exists_iff_the_least_shares_fit(seed, reserved, factor):
    problem = fleet(seed, reserved)
    problem = dataclasses.replace(problem, deadline_s=problem.deadline_s * factor)
    plan = ap.plan(problem)
    need = share_needed(problem, problem.max_pruning_ratio)
    for k, edge in enumerate(problem.edge_ids):
        needed = math.fsum(need[problem.edge == edge]) if np.all(np.isfinite(need[problem.edge == edge])) else math.inf
        if abs(needed - 1.0) > 1e-9:  # at equality rounding decides
            assert (plan.status[k] == "ok") == (needed <= 1.0)


@given(SEED, RESERVED)
def test_a_plan_never_breaks_deadline_budget_or_box(seed, reserved):
    plan = ap.plan(fleet(seed, reserved)).raise_if_failed()
    problem = plan.problem
    assert np.all(plan.latency_s <= problem.deadline_s * (1 + 1e-12))
    for edge in problem.edge_ids:
        assert math.fsum(plan.bandwidth_share[problem.edge == edge]) <= 1 + 1e-12
    assert np.all(plan.bandwidth_share >= 0)
    assert np.all(plan.pruning_ratio >= problem.min_pruning_ratio)
    assert np.all(plan.pruning_ratio <= problem.max_pruning_ratio)


@given(SEED, RESERVED)
def test_whole_weights_still_meet_the_deadline(seed, reserved):
    plan = ap.plan(fleet(seed, reserved)).raise_if_failed()
    problem = plan.problem
    weights = problem.conv_weights + plan.kept_fc_weights
    bits = problem.bits_per_weight * weights + problem.fixed_bits
    uplink = np.where(bits > 0, bits / np.maximum(plan.bandwidth_share, 1e-300), 0.0) / problem.full_band_rate_bps
    compute = problem.seconds_per_weight * weights + problem.extra_seconds
    assert np.all(compute + uplink <= problem.deadline_s * (1 + 1e-9))


@given(SEED, RESERVED)
def test_optimal_prunes_least_of_all_schemes_that_meet_the_deadline(seed, reserved):
    problem = fleet(seed, reserved)
    best = total(ap.plan(problem))
    for scheme in ("equal-resolved", "min-max"):
        other = ap.plan(problem, scheme)
        for k in np.flatnonzero(~other.failed):
            assert best[k] <= total(other)[k] + 1e-9


@given(SEED, RESERVED)
def test_min_max_has_the_smallest_largest_ratio(seed, reserved):
    problem = fleet(seed, reserved)
    fair, best = ap.plan(problem, "min-max"), ap.plan(problem)
    for edge in problem.edge_ids:
        on_edge = problem.edge == edge
        assert fair.pruning_ratio[on_edge].max() <= best.pruning_ratio[on_edge].max() + 1e-9


def test_a_million_equal_shares_add_up_to_one_band():
    plan = ap.plan(
        ap.PlanProblem(full_band_rate_bps=np.full(1_000_000, 1e12), seconds_per_weight=1e-12, deadline_s=3.0)
    )
    assert math.fsum(plan.bandwidth_share) <= 1 + 1e-12


# Rounding falls on the side of the promise: in exact arithmetic, not within a tolerance.


def test_the_least_share_meets_the_deadline_in_exact_arithmetic():
    rng = np.random.default_rng(3)
    for _ in range(200):
        problem = paper_fleet(deadline_s=rng.uniform(0.02, 0.2), bits_per_weight=rng.uniform(1, 64))
        weights = rng.uniform(1e3, 43_888, 5)
        share = share_for_weights(problem, weights)
        for n in range(5):
            rate, per_weight, deadline, bits, kept, b = (
                Fraction(float(values[n]))
                for values in (
                    problem.full_band_rate_bps, problem.seconds_per_weight, problem.deadline_s, problem.bits_per_weight,
                    weights, share,
                )
            )  # fmt: skip
            spare = deadline - (per_weight * kept + bits * kept / (b * rate))
            assert 0 <= spare <= deadline * Fraction(1, 10**14)


def test_a_plan_spends_the_band_to_the_last_digits_and_no_more_in_exact_arithmetic():
    for deadline_ms in range(25, 60):
        plan = ap.plan(paper_fleet(deadline_s=deadline_ms / 1e3)).raise_if_failed()
        unspent = 1 - sum(map(Fraction, plan.bandwidth_share.tolist()))
        assert unspent >= 0
        assert plan.shadow_price[0] == 0.0 or unspent <= Fraction(1, 10**14)
