"""The optimal scheme against the optimality conditions, an independent solver, and cases solved by hand."""

import dataclasses

import numpy as np
import pytest

import airprune as ap
from airprune.planning.tradeoff import unclipped_ratio_for_share
from support.fleets import kept_weights, kkt_residual, paper_fleet, random_fleet
from support.oracles import moderate_fleet, oracle_ratio

WITHOUT_LIMITS = {name for name, scheme in ap.SCHEMES.items() if not scheme.needs_limits}


def oracle_total_pruning(problem: ap.PlanProblem) -> tuple[float, float]:
    """(Σ c ρ of one edge by a conic solver, how far off it may be)."""
    ratio, error = oracle_ratio(problem, lambda kept: 1 - kept)
    return float(np.sum(problem.objective_weight * ratio)), error


def total_pruning(plan: ap.Plan) -> float:
    return float(np.sum(plan.problem.objective_weight * plan.pruning_ratio))


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("block", range(8))
def test_plan_matches_cvxpy_on_random_fleets(block, reserved):
    rng = np.random.default_rng([11, block])
    for _ in range(10):
        problem = moderate_fleet(rng, num_devices=int(np.exp(rng.uniform(0, np.log(200)))), reserved=reserved)
        plan = ap.plan(problem).raise_if_failed()
        expected, oracle_error = oracle_total_pruning(problem)
        scale = float(np.sum(problem.objective_weight))
        assert total_pruning(plan) - expected <= 1e-9 * scale + oracle_error
        assert expected - total_pruning(plan) <= 1e-7 * scale  # the solver stops before its optimum, never beyond ours


@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("block", [*range(3), *(pytest.param(block, marks=pytest.mark.slow) for block in range(3, 10))])
def test_plan_satisfies_kkt_on_random_fleets(block, reserved):
    rng = np.random.default_rng([12, block])
    for _ in range(100):
        num_devices, num_edges = int(np.exp(rng.uniform(0, np.log(200)))), int(rng.integers(1, 8))
        plan = ap.plan(random_fleet(rng, num_devices=num_devices, num_edges=num_edges, reserved=reserved))
        plan.raise_if_failed()
        assert kkt_residual(plan) <= 1e-10


def test_kkt_residual_notices_a_plan_that_is_not_optimal():
    plan = ap.plan(paper_fleet())
    moved = plan.bandwidth_share * np.array([1.01, 1.0, 0.99, 1.0, 1.0])
    assert kkt_residual(dataclasses.replace(plan, bandwidth_share=moved)) > 1e-4


@pytest.mark.parametrize("reserves", [{}, {"fixed_bits": 25_168.0, "extra_seconds": 0.001}])
def test_shadow_price_is_the_derivative_of_total_pruning_by_band(reserves):
    problem = paper_fleet(**reserves)
    step = 1e-6  # of the band: the optimum is piecewise smooth, so the error is of this order
    more = dataclasses.replace(problem, full_band_rate_bps=problem.full_band_rate_bps * (1 + step))
    saved = total_pruning(ap.plan(problem)) - total_pruning(ap.plan(more))
    assert saved / step == pytest.approx(ap.plan(problem).shadow_price[0], rel=1e-4)


def test_one_device_gets_the_whole_band_or_as_much_as_it_can_use():
    # W = 10 + 10 κ, one second per 1000 weights of compute, 1 bit per weight, 100 bit/s, deadline 0.16 s:
    # 0.16 = W (0.001 + 0.01) → W = 14.5454…, κ = 0.454545…
    short = ap.PlanProblem(
        full_band_rate_bps=100.0,
        seconds_per_weight=1e-3,
        bits_per_weight=1.0,
        conv_weights=10,
        fc_weights=10,
        deadline_s=0.16,
    )
    plan = ap.plan(short)
    assert plan.bandwidth_share[0] == pytest.approx(1.0, rel=1e-14)  # one division
    assert plan.pruning_ratio[0] == pytest.approx(1 - (0.16 / 0.011 - 10) / 10, rel=1e-12)  # closed form
    # 20 weights need 0.02 s of compute and 0.2 s of uplink at full band; with 1.02 s a fifth of the band does.
    loose = ap.plan(dataclasses.replace(short, deadline_s=1.02))
    assert loose.bandwidth_share[0] == pytest.approx(0.2, rel=1e-12)
    assert loose.pruning_ratio[0] == 0.0
    assert loose.shadow_price[0] == 0.0


def test_fixed_bits_and_extra_seconds_are_paid_before_any_weight():
    # As above, and 5 bits and 0.01 s on top: with 0.06 s more the same weights fit.
    one = {"full_band_rate_bps": 100.0, "seconds_per_weight": 1e-3, "bits_per_weight": 1.0}
    reserves = {"fixed_bits": 5.0, "extra_seconds": 0.01}
    plan = ap.plan(ap.PlanProblem(**one, **reserves, conv_weights=10, fc_weights=10, deadline_s=0.22))
    assert plan.bandwidth_share[0] == pytest.approx(1.0, rel=1e-14)  # one division
    assert plan.pruning_ratio[0] == pytest.approx(1 - (0.16 / 0.011 - 10) / 10, rel=1e-12)  # closed form
    assert plan.latency_s[0] == pytest.approx(0.22, rel=1e-14)
    # 25 bits at full band and 20 + 10 ms of compute: with 1.03 s a quarter of the band does.
    loose = ap.plan(ap.PlanProblem(**one, **reserves, conv_weights=10, fc_weights=10, deadline_s=1.03))
    assert loose.bandwidth_share[0] == pytest.approx(0.25, rel=1e-12)
    assert loose.pruning_ratio[0] == 0.0


@pytest.mark.parametrize("scheme", sorted(WITHOUT_LIMITS - {"min-max-time"}))  # which does not look at the deadline
def test_extra_seconds_are_a_shorter_deadline(scheme):
    extra = np.array([0.0, 0.001, 0.002, 0.003, 0.004])
    plan = ap.plan(paper_fleet(deadline_s=0.040, extra_seconds=extra), scheme)
    shorter = ap.plan(paper_fleet(deadline_s=0.040 - extra), scheme)
    np.testing.assert_array_equal(plan.bandwidth_share, shorter.bandwidth_share)
    np.testing.assert_allclose(plan.pruning_ratio, shorter.pruning_ratio, rtol=1e-12)  # both lifted by single ulps
    np.testing.assert_allclose(plan.latency_s, shorter.latency_s + extra, rtol=1e-14)


@pytest.mark.parametrize("scheme", sorted(WITHOUT_LIMITS - {"closed-form"}))
def test_fixed_bits_are_weights_that_need_no_training(scheme):
    """Where compute is free, q̂ bits more are one weight more that is never pruned."""
    fixed = ap.plan(paper_fleet(seconds_per_weight=0.0, fixed_bits=64 * 3_000.0), scheme)
    more = ap.plan(paper_fleet(seconds_per_weight=0.0, conv_weights=18_720 + 3_000), scheme)
    np.testing.assert_allclose(fixed.bandwidth_share, more.bandwidth_share, rtol=1e-12)
    np.testing.assert_allclose(fixed.pruning_ratio, more.pruning_ratio, rtol=1e-11)
    np.testing.assert_allclose(fixed.min_deadline_s, more.min_deadline_s, rtol=1e-14)


def test_a_code_of_fixed_length_buys_training_time_with_band():
    """q̂ = 0: 3,200 bits at b = 1/2 take 1 ms of 5, which leaves 4 ms for 4,000 of 8,000 prunable weights."""
    problem = ap.PlanProblem(
        full_band_rate_bps=6.4e6,
        seconds_per_weight=np.array([1e-6, 1e-6]),
        bits_per_weight=0.0,
        fixed_bits=3_200.0,
        conv_weights=0,
        fc_weights=8_000,
        deadline_s=0.005,
    )
    plan = ap.plan(problem).raise_if_failed()
    np.testing.assert_allclose(plan.bandwidth_share, 0.5, rtol=1e-14)
    np.testing.assert_allclose(plan.pruning_ratio, 0.5, rtol=1e-13)
    assert kkt_residual(plan) <= 1e-10


def test_a_code_of_fixed_length_prunes_nothing_when_compute_is_free():
    plan = ap.plan(paper_fleet(bits_per_weight=0.0, fixed_bits=1e5, seconds_per_weight=0.0)).raise_if_failed()
    assert np.all(plan.pruning_ratio == 0.0)
    np.testing.assert_allclose(plan.bandwidth_share, 1e5 / (plan.problem.full_band_rate_bps * 0.030), rtol=1e-14)


def test_equal_devices_get_equal_shares():
    plan = ap.plan(ap.PlanProblem(full_band_rate_bps=np.full(7, 4e8), seconds_per_weight=1e-8))
    assert np.ptp(plan.bandwidth_share) <= 1e-15
    assert np.ptp(plan.pruning_ratio) <= 1e-14
    assert plan.bandwidth_share.sum() == pytest.approx(1.0, rel=1e-14)


def test_equal_devices_get_equal_shares_when_compute_is_free():
    plan = ap.plan(ap.PlanProblem(full_band_rate_bps=np.full(7, 4e8), seconds_per_weight=0.0))
    assert np.ptp(plan.bandwidth_share) <= 1e-15
    assert plan.bandwidth_share.sum() == pytest.approx(1.0, rel=1e-14)


def test_free_compute_is_the_fractional_knapsack():
    rng = np.random.default_rng(5)
    rate = rng.uniform(1e8, 1e9, 40)
    problem = ap.PlanProblem(full_band_rate_bps=rate, seconds_per_weight=0.0, deadline_s=0.25, max_pruning_ratio=0.9)
    plan = ap.plan(problem).raise_if_failed()
    # By hand: everyone gets its least share, then the best channels are filled one after the other.
    weights_least, weights_most = 18_720 + 0.1 * 25_168, 43_888
    share = 64 * weights_least / (rate * 0.25)
    left = 1.0 - share.sum()
    for n in np.argsort(-rate):
        given = min(left, 64 * (weights_most - weights_least) / (rate[n] * 0.25))
        share[n] += given
        left -= given
    np.testing.assert_allclose(plan.bandwidth_share, share, rtol=1e-11)  # sums of forty terms
    assert np.count_nonzero((plan.pruning_ratio > 1e-12) & (plan.pruning_ratio < 0.9 - 1e-12)) == 1


def test_vanishing_compute_converges_to_the_knapsack():
    free = ap.plan(paper_fleet(seconds_per_weight=0.0))
    for a in (1e-13, 1e-16, 1e-20, 1e-30, 1e-300):
        almost = ap.plan(paper_fleet(seconds_per_weight=a))
        assert total_pruning(almost) == pytest.approx(total_pruning(free), abs=max(1e-14, a * 1e7))


def test_a_fixed_ratio_fixes_the_plan():
    problem = paper_fleet(min_pruning_ratio=0.8, max_pruning_ratio=0.8)
    plan = ap.plan(problem).raise_if_failed()
    assert np.all(plan.pruning_ratio == 0.8)
    weights = kept_weights(problem, np.full(5, 0.8))
    need = 64 * weights / (problem.full_band_rate_bps * (0.03 - problem.seconds_per_weight * weights))
    np.testing.assert_allclose(plan.bandwidth_share, need, rtol=1e-14)


def test_objective_weights_move_band_to_the_heavier_device():
    problem = ap.PlanProblem(
        full_band_rate_bps=np.full(2, 2e8),
        seconds_per_weight=1e-7,
        objective_weight=np.array([1.0, 3.0]),
    )
    plan = ap.plan(problem)
    assert plan.pruning_ratio[1] < plan.pruning_ratio[0]
    assert kkt_residual(plan) <= 1e-10


def test_a_model_with_nothing_to_prune_fits_or_does_not():
    """1,000 weights of 1 bit over 1,000 bit/s in 4 s: a quarter of the band is exactly enough, less is not."""
    problem = ap.PlanProblem(
        full_band_rate_bps=1_000.0, seconds_per_weight=0.0, bits_per_weight=1.0, conv_weights=1_000, fc_weights=0,
        deadline_s=4.0,
    )  # fmt: skip
    ratios = [float(unclipped_ratio_for_share(problem, np.array([share]))[0]) for share in (1.0, 0.25, 0.2499)]
    assert ratios == [0.0, 0.0, np.inf]


def test_a_model_with_nothing_to_prune_only_takes_what_it_needs():
    problem = paper_fleet(fc_weights=np.array([0, 25_168, 25_168, 25_168, 25_168]))
    plan = ap.plan(problem).raise_if_failed()
    assert plan.latency_s[0] == pytest.approx(0.03, rel=1e-14)
    assert plan.pruning_ratio[0] in (0.0, 1.0)


@pytest.mark.parametrize(("rate_bps", "compute_outweighs"), [(4e7, False), (1e8, False), (5e8, True), (8e8, True)])
def test_remark_2_holds_only_where_compute_outweighs_uplink(rate_bps, compute_outweighs):
    """Erratum to Remark 2: the worse channel gets more band exactly where a r b > q̂.

    Two devices, alike but for one per cent of rate, both strictly inside the box.
    """
    seconds_per_weight = 0.9 * 0.030 / 43_888  # the whole model takes 90 % of the deadline to train
    worse, better = np.array([0.995, 1.005]) * rate_bps
    plan = ap.plan(
        ap.PlanProblem(
            full_band_rate_bps=[worse, better],
            seconds_per_weight=seconds_per_weight,
            conv_weights=0,
            fc_weights=43_888,
        )
    )
    assert np.all((plan.pruning_ratio > 0.01) & (plan.pruning_ratio < 0.99))
    share_of_worse, share_of_better = plan.bandwidth_share
    assert np.all((seconds_per_weight * rate_bps * plan.bandwidth_share > 64.0) == compute_outweighs)
    assert (share_of_worse > share_of_better) == compute_outweighs
