"""The scheme of least gradient variance: hand values, an independent solver, its optimality conditions, limit cases."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize

import airprune as ap
from support.fleets import paper_fleet, random_fleet, share_needed
from support.oracles import moderate_fleet, oracle_ratio


def three_devices(**changes) -> ap.PlanProblem:
    return ap.PlanProblem(
        **{"full_band_rate_bps": np.array([300e6, 240e6, 200e6]), "seconds_per_weight": 40 / 3e9, **changes}
    )


def variance_of(problem: ap.PlanProblem, ratio: np.ndarray) -> float:
    """Σ c (1/κ − 1), written out once more."""
    return float(np.sum(problem.objective_weight * ratio / (1 - ratio)))


def test_three_devices_solved_by_bisection_on_the_multiplier():
    """Computed apart from this program, to twelve digits."""
    plan = ap.plan(three_devices(), "variance")
    np.testing.assert_allclose(plan.pruning_ratio, [0.191117031892, 0.275815518914, 0.338442198368], atol=1e-12)
    np.testing.assert_allclose(plan.bandwidth_share, [0.282799418161, 0.333894063239, 0.3833065186], atol=1e-12)
    assert plan.shadow_price[0] == pytest.approx(8.245638, abs=1e-6)


def test_optimal_starves_the_worst_of_them_instead():
    plan = ap.plan(three_devices())
    np.testing.assert_allclose(plan.pruning_ratio, [0, 0, 0.698928834], atol=1e-9)


@pytest.mark.parametrize("reserves", [{}, {"fixed_bits": 25_168.0, "extra_seconds": np.array([0.0, 0.001, 0.002])}])
def test_three_devices_match_sequential_quadratic_programming(reserves):
    problem = three_devices(**reserves)
    found = minimize(
        lambda ratio: variance_of(problem, ratio),
        np.full(3, 0.6),
        method="SLSQP",
        bounds=[(0.0, 0.99)] * 3,
        constraints={"type": "ineq", "fun": lambda ratio: 1.0 - share_needed(problem, ratio).sum()},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(ap.plan(problem, "variance").pruning_ratio, found.x, atol=1e-6)  # of the solver


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("block", range(4))
def test_variance_matches_cvxpy_on_random_fleets(block, reserved):
    import cvxpy as cp

    rng = np.random.default_rng([21, block])
    for _ in range(10):
        problem = moderate_fleet(rng, num_devices=int(np.exp(rng.uniform(0, np.log(60)))), reserved=reserved)
        ratio = ap.plan(problem, "variance").raise_if_failed().pruning_ratio
        expected, oracle_error = oracle_ratio(problem, lambda kept: cp.inv_pos(kept))
        ours, theirs = variance_of(problem, ratio), variance_of(problem, expected)
        scale = theirs + float(np.sum(problem.objective_weight))
        assert ours - theirs <= 1e-8 * scale + oracle_error
        assert theirs - ours <= 1e-5 * scale + oracle_error  # the solver stops before its optimum, never beyond ours


@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("block", range(5))
def test_variance_satisfies_kkt_on_random_fleets(block, reserved):
    rng = np.random.default_rng([22, block])
    for _ in range(60):
        problem = random_fleet(rng, num_devices=int(rng.integers(1, 120)), num_edges=4, reserved=reserved)
        assert kkt_residual(ap.plan(problem, "variance").raise_if_failed()) <= 1e-9


def kkt_residual(plan: ap.Plan) -> float:
    """Worst relative gap between c/κ² and λ db/dκ over devices inside their box, sign only at its ends."""
    p, kept = plan.problem, 1.0 - plan.pruning_ratio
    time = p.deadline_s - p.extra_seconds
    left = time - p.seconds_per_weight * (p.conv_weights + kept * p.fc_weights)
    price = p.groups.spread(plan.shadow_price)
    with np.errstate(divide="ignore"):
        gain = p.objective_weight / kept**2
    cost = price * p.fc_weights * (p.bits_per_weight * time + p.seconds_per_weight * p.fixed_bits)
    cost = cost / (p.full_band_rate_bps * left**2)
    excess = np.where(np.isfinite(gain), (gain - cost) / np.maximum(gain, cost), 1.0)
    at_least = plan.bandwidth_share <= share_needed(p, p.max_pruning_ratio) * (1 + 1e-13)
    at_most = plan.bandwidth_share >= np.minimum(share_needed(p, p.min_pruning_ratio), 1.0) * (1 - 1e-13)
    gap = np.where(at_most & at_least, 0, np.where(at_most, -excess, np.where(at_least, excess, np.abs(excess))))
    used = p.groups.sum(plan.bandwidth_share)
    slackness = np.where(plan.shadow_price > 0, np.abs(used - 1.0), np.maximum(used - 1.0, 0.0))
    return float(max(gap.max(), slackness.max()))


@pytest.mark.parametrize("seconds_per_weight", [0.0, 1e-8])
def test_equal_devices_get_equal_shares(seconds_per_weight):
    plan = ap.plan(three_devices(full_band_rate_bps=np.full(7, 4e8), seconds_per_weight=seconds_per_weight), "variance")
    np.testing.assert_allclose(plan.bandwidth_share, 1 / 7, rtol=1e-14)


def test_shadow_price_is_the_derivative_of_the_variance_by_band():
    problem = paper_fleet(fixed_bits=25_168.0)
    step = 1e-6  # of the band: the error is of this order
    more = dataclasses.replace(problem, full_band_rate_bps=problem.full_band_rate_bps * (1 + step))
    plan, wider = ap.plan(problem, "variance"), ap.plan(more, "variance")
    saved = variance_of(problem, plan.pruning_ratio) - variance_of(problem, wider.pruning_ratio)
    assert saved / step == pytest.approx(plan.shadow_price[0], rel=1e-4)


def test_a_device_out_of_reach_takes_no_band_from_the_others():
    """It may lose its whole model; the others are planned as if it were not there."""
    problem = paper_fleet(conv_weights=0, full_band_rate_bps=np.array([0.0, 4e8, 3e8, 3e8, 2e8]), deadline_s=0.01)
    for scheme in ("optimal", "variance"):
        plan, without = ap.plan(problem, scheme), ap.plan(problem.subset(np.arange(1, 5)), scheme)
        assert plan.bandwidth_share[0] == 0 and plan.pruning_ratio[0] == 1
        np.testing.assert_array_equal(plan.pruning_ratio[1:], without.pruning_ratio)
        assert plan.shadow_price[0] == without.shadow_price[0]
