"""Planning where a device's power lies on its slice, R(b) = b B log2(1 + γ/b), against independent solvers."""

from __future__ import annotations

import dataclasses

import cvxpy as cp
import numpy as np
import pytest
from scipy.special import lambertw

import airprune as ap
from airprune.errors import InvalidValue
from airprune.planning import DeviceLimits
from airprune.wireless.channel import Radio, uplink_rate_bps
from airprune.wireless.slice_noise import marginal_rate_bps, slice_rate_bps, slice_share
from support.fleets import kept_weights, paper_fleet, random_fleet
from support.tiny import blobs, tiny_scenario

TAKES = [name for name, scheme in ap.SCHEMES.items() if scheme.takes_slices]


def snr_of(problem):
    return 2.0 ** (problem.full_band_rate_bps / problem.slice_bandwidth_hz) - 1.0


def rate_needed(problem, ratio):
    weights = kept_weights(problem, ratio)
    left_s = problem.deadline_s - problem.extra_seconds - problem.seconds_per_weight * weights
    return (problem.bits_per_weight * weights + problem.fixed_bits) / left_s


def share_needed(problem, ratio):
    """b of R(b) = rate by Lambert's W: with t = R ln 2 / (B γ), 1 + γ/b = −W(−t e^−t) / t."""
    snr = snr_of(problem)
    t = rate_needed(problem, ratio) * np.log(2) / (problem.slice_bandwidth_hz * snr)
    return snr / (-lambertw(-t * np.exp(-t), -1).real / t - 1.0)


def slice_fleet(rng, num_devices, *, reserved=False):
    """A random fleet with 0.2 to 15 bit/s/Hz over the whole bandwidth, at a deadline where bandwidth binds."""
    problem = random_fleet(rng, num_devices=num_devices, reserved=reserved)
    band = problem.full_band_rate_bps / rng.uniform(0.2, 15.0, num_devices)
    problem = dataclasses.replace(problem, slice_bandwidth_hz=band)
    deadline_s = ap.plan(problem).min_deadline_s.max() * (1 + 10.0 ** rng.uniform(-2, 1))
    return dataclasses.replace(problem, deadline_s=max(deadline_s, 1e-6))


def oracle(problem):
    """(Σ c ρ of one edge by a conic solver, how far off it may be); rates as the perspective of a logarithm."""
    p = problem
    everything, time = p.conv_weights + p.fc_weights, p.deadline_s - p.extra_seconds
    band, snr = p.slice_bandwidth_hz / np.log(2), snr_of(p)
    alpha = p.seconds_per_weight * everything / time
    per_weight, fixed = p.bits_per_weight * everything / (time * band), p.fixed_bits / (time * band)
    kept, bend, share = (cp.Variable(p.num_devices) for _ in range(3))
    w = cp.multiply(p.fc_weights / everything, kept) + p.conv_weights / everything
    left = 1 - cp.multiply(alpha, w)
    needed = cp.multiply(per_weight, w) + cp.multiply(alpha * per_weight, bend)
    if np.any(fixed > 0):
        needed = needed + cp.multiply(fixed, cp.inv_pos(left))
    budget = cp.sum(share) <= 1
    constraints = [
        kept >= 1 - p.max_pruning_ratio,
        kept <= 1 - p.min_pruning_ratio,
        left >= 0,
        cp.SOC(bend + left, cp.vstack([2 * w, bend - left]), axis=0),  # bend · left ≥ w²
        needed <= -cp.rel_entr(share, share + snr),  # b ln(1 + γ/b)
        budget,
    ]
    goal = cp.Minimize(cp.sum(cp.multiply(p.objective_weight, 1 - kept)))
    cp.Problem(goal, constraints).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11, reduced_tol_gap_rel=1e-9
    )
    ratio = np.clip(1 - kept.value, p.min_pruning_ratio, p.max_pruning_ratio)
    overspent = max(0.0, float(np.nansum(share_needed(p, ratio))) - 1.0)
    return float(np.sum(p.objective_weight * ratio)), overspent * float(budget.dual_value)


def test_the_whole_bandwidth_has_the_rate_of_eq_10_and_half_of_it_more_than_half():
    # SNR 3: 2 bit/s/Hz over 20 MHz is 40 Mbit/s; half the bandwidth at SNR 6 has 10 MHz · log2(7).
    radio = Radio(slice_noise=True)
    assert uplink_rate_bps(1.0, 40e6, radio.slice_bandwidth_hz) == pytest.approx(40e6, rel=1e-14)  # two functions
    assert uplink_rate_bps(0.5, 40e6, 20e6) == pytest.approx(10e6 * np.log2(7), rel=1e-14)
    assert uplink_rate_bps(0.0, 40e6, 20e6) == 0.0


def test_a_tiny_slice_has_the_rate_of_infinite_bandwidth_from_above_one():
    # b → ∞ leaves B γ / ln 2: γ = 0.01 at 1 Hz.
    rate = np.log2(1.01)
    assert slice_rate_bps(1e9, rate, 1.0) == pytest.approx(0.01 / np.log(2), rel=1e-9)
    assert slice_share(np.array([0.0, 0.0145]), np.array([rate, rate]), 1.0).tolist() == [0.0, np.inf]


def test_the_share_of_a_rate_is_that_of_lamberts_function():
    rng = np.random.default_rng(1)
    snr, share = 10.0 ** rng.uniform(-1, 6, 5000), 10.0 ** rng.uniform(-6, 0, 5000)
    rate = share * np.log2(1 + snr / share)
    t = rate * np.log(2) / snr
    by_lambert = snr / (-lambertw(-t * np.exp(-t), -1).real / t - 1.0)
    np.testing.assert_allclose(
        slice_share(rate, np.log2(1 + snr), 1.0), by_lambert, rtol=1e-9
    )  # W loses digits at −1/e
    np.testing.assert_allclose(slice_share(rate, np.log2(1 + snr), 1.0), share, rtol=1e-11)


def test_the_slope_is_that_of_a_difference():
    share, rate, step = np.array([0.01, 0.3, 1.0]), np.array([0.5, 4.0, 15.0]), 1e-6
    sides = [slice_rate_bps(share * (1 + sign * step), rate, 1.0) for sign in (1, -1)]
    by_difference = (sides[0] - sides[1]) / (2 * step * share)
    np.testing.assert_allclose(marginal_rate_bps(share, rate, 1.0), by_difference, rtol=1e-8)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("block", range(10))
def test_plan_matches_cvxpy_on_random_fleets(block, reserved):
    rng = np.random.default_rng([31, block])
    for _ in range(10):
        problem = slice_fleet(rng, int(np.exp(rng.uniform(0, np.log(60)))), reserved=reserved)
        plan = ap.plan(problem).raise_if_failed()
        expected, oracle_error = oracle(problem)
        total, scale = float(np.sum(problem.objective_weight * plan.pruning_ratio)), problem.objective_weight.sum()
        assert total - expected <= 1e-9 * scale + oracle_error
        assert expected - total <= 1e-5 * scale  # on exponential cones the solver stops early, never beyond ours


def share_by_bisection(problem, ratio):
    """b of R(b) = rate within an ulp, where Lambert's function loses digits."""
    rate, snr = rate_needed(problem, ratio) * np.log(2) / problem.slice_bandwidth_hz, snr_of(problem)
    low, high = np.full(rate.shape, -60.0), np.full(rate.shape, 8.0)  # ln b
    for _ in range(80):
        middle = 0.5 * (low + high)
        short = np.exp(middle) * np.log1p(snr / np.exp(middle)) < rate
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.where(rate == 0.0, 0.0, np.where((rate >= 0.0) & (rate < snr), np.exp(high), np.inf))


@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("block", range(10))
def test_no_plan_is_better_by_lagranges_dual(block, reserved):
    """Σ min (c ρ + λ b(ρ)) − λ bounds Σ c ρ from below at any price λ; b(ρ) is convex, so a golden section finds it."""
    rng, golden = np.random.default_rng([31, block]), (np.sqrt(5) - 1) / 2
    for _ in range(10):
        p = slice_fleet(rng, int(np.exp(rng.uniform(0, np.log(60)))), reserved=reserved)
        plan = ap.plan(p).raise_if_failed()
        price = plan.shadow_price[0]

        def cost(ratio, p=p, price=price):
            return p.objective_weight * ratio + price * share_by_bisection(p, ratio)

        low, high = p.min_pruning_ratio, p.max_pruning_ratio
        bounds = cost(low), cost(high)
        for _ in range(60):
            left, right = high - golden * (high - low), low + golden * (high - low)
            is_left = cost(left) < cost(right)
            low, high = np.where(is_left, low, left), np.where(is_left, right, high)
        mine = cost(plan.pruning_ratio)
        least = np.fmin.reduce([*bounds, cost(0.5 * (low + high)), mine])
        spare = 1.0 - share_by_bisection(p, plan.pruning_ratio).sum()
        assert np.sum(mine - least) + price * spare <= 1e-12 * p.objective_weight.sum()


@pytest.mark.parametrize("reserved", [False, True])
def test_plan_satisfies_kkt_on_random_fleets(reserved):
    rng = np.random.default_rng(32)
    for _ in range(60):
        problem = slice_fleet(rng, int(np.exp(rng.uniform(0, np.log(200)))), reserved=reserved)
        plan = ap.plan(problem).raise_if_failed()
        b, p = plan.bandwidth_share, problem
        x = snr_of(p) / b
        rate = b * p.slice_bandwidth_hz * np.log2(1 + x)
        slope = p.slice_bandwidth_hz / np.log(2) * (np.log1p(x) - x / (1 + x))
        bend = (p.deadline_s - p.extra_seconds) * p.bits_per_weight + p.seconds_per_weight * p.fixed_bits
        each = p.seconds_per_weight * rate + p.bits_per_weight
        gain = p.objective_weight * bend * slope / p.fc_weights / np.where(each > 0, each, np.inf) ** 2
        inside = (plan.pruning_ratio > p.min_pruning_ratio + 1e-9) & (plan.pruning_ratio < p.max_pruning_ratio - 1e-9)
        inside &= bend > 0  # else weights cost neither time nor bits
        np.testing.assert_allclose(gain[inside], plan.shadow_price[0], rtol=1e-6)  # 1e-9 of ρ moves flat gains so far
        assert b.sum() <= 1.0 and np.all(plan.latency_s <= problem.deadline_s * (1 + 1e-12))


def test_the_shadow_price_is_the_derivative_of_total_pruning_by_bandwidth():
    problem = paper_fleet(slice_bandwidth_hz=20e6, deadline_s=0.02)
    step = 1e-6
    wider = dataclasses.replace(
        problem,  # (1 + step) B with the same power: γ per Hz of the old bandwidth falls
        full_band_rate_bps=20e6 * (1 + step) * np.log2(1 + snr_of(problem) / (1 + step)),
        slice_bandwidth_hz=20e6 * (1 + step),
    )
    saved = np.sum(ap.plan(problem).pruning_ratio) - np.sum(ap.plan(wider).pruning_ratio)
    assert saved / step == pytest.approx(ap.plan(problem).shadow_price[0], rel=1e-4)  # of the order of the step


def test_one_device_alone_plans_as_with_linear_rates():
    linear = ap.PlanProblem(full_band_rate_bps=5e7, seconds_per_weight=1e-8)
    sliced = dataclasses.replace(linear, slice_bandwidth_hz=20e6)
    ours, theirs = ap.plan(sliced), ap.plan(linear)
    np.testing.assert_allclose(ours.pruning_ratio, theirs.pruning_ratio, rtol=1e-12)
    np.testing.assert_allclose(ours.min_deadline_s, theirs.min_deadline_s, rtol=1e-12)


@pytest.mark.parametrize("scheme", TAKES)
def test_slices_never_prune_more_than_linear_rates(scheme):
    problem = paper_fleet(deadline_s=0.025)
    sliced = dataclasses.replace(problem, slice_bandwidth_hz=20e6)
    assert ap.plan(sliced, scheme).pruning_ratio.sum() <= ap.plan(problem, scheme).pruning_ratio.sum()
    assert np.all(ap.plan(sliced, scheme).min_deadline_s <= ap.plan(problem, scheme).min_deadline_s)


@pytest.mark.parametrize("scheme", ["optimal", "min-max"])
def test_the_smallest_deadline_has_a_plan_and_a_smaller_one_has_none(scheme):
    rng = np.random.default_rng(33)
    for _ in range(20):
        problem = slice_fleet(rng, 12)
        smallest_s = ap.plan(problem, scheme).min_deadline_s[0]
        at, below = (dataclasses.replace(problem, deadline_s=smallest_s * factor) for factor in (1.0, 1.0 - 1e-9))
        assert ap.plan(at, scheme).status[0] == "ok" and ap.plan(below, scheme).status[0] != "ok"


def test_min_max_spends_the_bandwidth_so_that_no_smaller_ratio_fits():
    rng = np.random.default_rng(35)
    checked = 0
    for _ in range(40):
        problem = slice_fleet(rng, int(rng.integers(1, 80)))
        common = ap.plan(problem, "min-max").raise_if_failed().pruning_ratio.max()
        if common <= problem.min_pruning_ratio.max() + 1e-9:
            continue
        smaller, larger = (
            np.nansum(share_needed(problem, np.clip(t, problem.min_pruning_ratio, problem.max_pruning_ratio)))
            for t in (common - 1e-9, common + 1e-9)
        )
        assert larger <= 1.0 < smaller  # shares by Lambert's function, good to 1e-9
        checked += 1
    assert checked > 10


def test_edges_are_planned_as_if_each_were_alone():
    rng = np.random.default_rng(34)
    problem = dataclasses.replace(slice_fleet(rng, 30), edge=rng.integers(0, 3, 30))
    plan = ap.plan(problem)
    for edge in range(3):
        own = problem.edge == edge
        np.testing.assert_allclose(ap.plan(problem.subset(own)).bandwidth_share, plan.bandwidth_share[own], rtol=1e-9)


def test_an_impossible_deadline_is_a_status_on_its_edge_alone():
    problem = paper_fleet(edge=[0, 0, 1, 1, 1], slice_bandwidth_hz=20e6, deadline_s=[0.001, 0.001, 0.03, 0.03, 0.03])
    plan = ap.plan(problem)
    assert plan.status.tolist() == ["infeasible-bandwidth", "ok"]
    assert np.isnan(plan.bandwidth_share[:2]).all() and np.isfinite(plan.bandwidth_share[2:]).all()


@pytest.mark.parametrize("scheme", sorted(set(ap.SCHEMES) - set(TAKES)))
def test_schemes_that_need_linear_rates_refuse_in_one_sentence(scheme):
    limits = DeviceLimits(cpu_hz_max=3e9, power_w_max=0.6, bandwidth_hz=20e6)
    with pytest.raises(InvalidValue, match=rf"radio\.slice_noise must be false with scheme '{scheme}'"):
        ap.plan(paper_fleet(slice_bandwidth_hz=20e6, limits=limits), scheme)


def test_a_run_with_slices_meets_the_deadline_on_the_clock_and_prunes_less():
    def records(**changes):
        return [
            r for r in ap.run(tiny_scenario(plan__deadline_s=0.0002, **changes), dataset=blobs()) if r["kind"] == "edge"
        ]

    ours, theirs = records(radio__slice_noise=True), records()
    for record in ours:
        total_s = np.add(record["compute_s"], record["uplink_s"])
        assert total_s.max() <= 0.0002 * (1 + 1e-9)
    assert np.mean(ours[0]["pruning_ratio"]) < np.mean(theirs[0]["pruning_ratio"])
