"""Schemes that choose time, clock, power and blocks: hand values, independent solvers, limit cases."""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import pytest
from scipy import optimize

import airprune as ap
from airprune.planning import DeviceLimits
from airprune.selection import SELECTIONS
from airprune.selection.base import Candidates
from airprune.selection.ratio_cap import set_costs
from airprune.units import dbm_to_watt

FULL_POWER_W = dbm_to_watt(28.0)
KAPPA = 1e-28


def limits(**changes) -> DeviceLimits:
    return DeviceLimits(**{"cpu_hz_max": 3e9, "power_w_max": FULL_POWER_W, "bandwidth_hz": 20e6, **changes})


def three(**changes) -> ap.PlanProblem:
    """Three devices of one edge with the paper's CNN."""
    fields = {"full_band_rate_bps": np.array([300e6, 240e6, 200e6]), "seconds_per_weight": 40 / 3e9}
    return ap.PlanProblem(**{**fields, "limits": limits(), **changes})


def random_fleet(rng: np.random.Generator, count: int, edges: int = 1, **changes) -> ap.PlanProblem:
    clock = rng.uniform(0.5e9, 3e9, count)
    fields = {
        "full_band_rate_bps": rng.uniform(30e6, 350e6, count),
        "seconds_per_weight": 40 / clock,
        "extra_seconds": rng.uniform(0.0, 1e-3, count),
        "fixed_bits": rng.uniform(0.0, 25_000.0, count),
        "edge": np.arange(count) % edges,
        "limits": limits(cpu_hz_max=clock),
    }
    return ap.PlanProblem(**{**fields, **changes})


# The soonest end


def test_without_pruning_all_arrive_together_after_compute_and_the_sum_of_the_uploads():
    plan = ap.plan(three(), "min-max-time")
    np.testing.assert_allclose(plan.bandwidth_share, np.array([4, 5, 6]) / 15, rtol=1e-12)  # closed form
    np.testing.assert_allclose(plan.latency_s, 43_888 * (40 / 3e9 + 64 / 300e6 + 64 / 240e6 + 64 / 200e6), rtol=1e-12)
    np.testing.assert_allclose(plan.latency_s, 35.695573e-3, rtol=2e-8)  # eight digits given
    assert plan.status[0] == "late" and not plan.pruning_ratio.any()


def test_no_shares_end_sooner_than_min_max_time():
    """Against SLSQP on the largest latency, over fleets with unequal clocks, probes and masks."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        problem = random_fleet(rng, int(rng.integers(2, 7)))
        plan = ap.plan(problem, "min-max-time")
        assert plan.bandwidth_share.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.ptp(plan.latency_s) < 1e-12  # everybody at once
        compute_s = problem.seconds_per_weight * 43_888 + problem.extra_seconds
        uplink_s = (64 * 43_888 + problem.fixed_bits) / problem.full_band_rate_bps
        start = np.append(np.full(problem.num_devices, 1 / problem.num_devices), 1.0)
        found = optimize.minimize(
            lambda x: x[-1],
            start,
            method="SLSQP",
            bounds=[(1e-6, 1)] * problem.num_devices + [(0, None)],
            constraints=[
                {"type": "ineq", "fun": lambda x: 1 - x[:-1].sum()},
                {"type": "ineq", "fun": lambda x, c=compute_s, u=uplink_s: x[-1] - c - u / x[:-1]},
            ],
            options={"ftol": 1e-12, "maxiter": 500},
        )
        assert plan.edge_latency_s[0] == pytest.approx(found.fun, rel=1e-6)  # what SLSQP reaches


# Joint pruning and selection


def selected(rate, deadline_s, **options) -> list[int]:
    """Who stays in the end."""
    component, stays = SELECTIONS["ratio-cap"], np.arange(len(rate))
    while True:
        problem = four(deadline_s, np.asarray(rate)[stays])
        candidates = Candidates(
            device=stays,
            edge=problem.edge,
            full_band_rate_bps=problem.full_band_rate_bps,
            num_samples=np.ones(len(stays)),
            round_index=0,
            rng=np.random.default_rng(0),
        )
        kept = component.after(component.Options(**options), candidates, ap.plan(problem))
        if kept.all():
            return stays.tolist()
        stays = stays[kept]


def four(deadline_s: float, rate) -> ap.PlanProblem:
    return ap.PlanProblem(
        full_band_rate_bps=rate, seconds_per_weight=40 / 3e9, deadline_s=deadline_s, max_pruning_ratio=0.95
    )


def test_the_best_set_of_four_is_that_of_the_two_best_channels():
    rate = np.array([320e6, 300e6, 240e6, 150e6])
    problem = four(0.020, rate)
    sets, cost = set_costs(problem, ap.plan(problem), least=1, left_out_cost=1.0)
    first, second = np.argsort(cost)[:2]
    assert np.flatnonzero(sets[first]).tolist() == [0, 1] and cost[first] == pytest.approx(2.0, abs=1e-12)
    assert np.flatnonzero(sets[second]).tolist() == [0, 2] and cost[second] == pytest.approx(2.1546323145, abs=1e-10)
    assert selected(rate, 0.020, search="exact") == [0, 1]


def test_exact_selection_is_that_of_trying_every_set():
    rng = np.random.default_rng(1)
    for _ in range(12):
        count = int(rng.integers(2, 7))
        rate, deadline_s = rng.uniform(60e6, 350e6, count), rng.uniform(0.008, 0.04)
        cost = {}
        for size in range(1, count + 1):
            for chosen in itertools.combinations(range(count), size):
                plan = ap.plan(four(deadline_s, rate[list(chosen)]))
                if not plan.failed.any():
                    cost[chosen] = plan.pruning_ratio.sum() + count - size
        best = min(cost.values(), default=None)
        chosen = tuple(selected(rate, deadline_s, search="exact"))
        assert (cost[chosen] == pytest.approx(best, abs=1e-9)) if best is not None else len(chosen) == count


def test_exact_selection_refuses_edges_that_would_take_forever():
    with pytest.raises(ap.InvalidValue, match=r"ratio-cap\.search must be \"one-by-one\" with more than 12 devices"):
        selected(np.full(13, 300e6), 0.02, search="exact")


# Energy and delay (HFEL)


def hfel_cost(plan: ap.Plan, energy_weight: float = 1.0, time_weight: float = 1.0) -> float:
    return float(energy_weight * plan.energy_j.sum() + time_weight * plan.edge_latency_s.sum())


def test_clocks_and_shares_at_the_least_energy_and_delay():
    """Computed apart from this program, to the digits given."""
    plan = ap.plan(three(), "hfel")
    assert hfel_cost(plan) == pytest.approx(0.1037358575, abs=1e-10)
    np.testing.assert_allclose(plan.latency_s, 36.62715e-3, atol=5e-9)
    np.testing.assert_allclose(plan.bandwidth_share, [0.26961, 0.33302, 0.39737], atol=6e-6)
    np.testing.assert_allclose(plan.cpu_hz, [0.9236e9, 1.1834e9, 1.3670e9], atol=6e4)
    hurried = ap.plan(three(), "hfel", {"time_weight": 10.0})
    assert hfel_cost(hurried, time_weight=10.0) == pytest.approx(0.4278292558, abs=1e-10)
    assert hurried.edge_latency_s[0] == pytest.approx(35.79615e-3, abs=5e-9)


def test_where_energy_is_free_the_end_is_the_soonest():
    plan, soonest = ap.plan(three(), "hfel", {"energy_weight": 0.0}), ap.plan(three(), "min-max-time")
    np.testing.assert_array_equal(plan.bandwidth_share, soonest.bandwidth_share)
    np.testing.assert_allclose(plan.latency_s, soonest.latency_s, rtol=1e-12)


def test_where_time_is_free_and_clocks_are_fixed_band_goes_by_the_root_of_the_energy():
    power_w = np.array([0.1, 0.4, 0.9])
    problem = three(limits=limits(cpu_hz_min=3e9, power_w_max=power_w))
    share = ap.plan(problem, "hfel", {"time_weight": 1e-12}).bandwidth_share
    expected = np.sqrt(power_w / problem.full_band_rate_bps)
    np.testing.assert_allclose(share, expected / expected.sum(), rtol=1e-6)  # time is not quite free


def test_no_clocks_and_shares_cost_less_than_those_of_hfel():
    """Against a conic solver in milliseconds, over unequal fleets and weights; all edges of a problem at once."""
    rng = np.random.default_rng(2)
    problem = random_fleet(rng, 12, edges=4)
    for weight in (0.3, 3.0, 30.0):
        plan = ap.plan(problem, "hfel", {"time_weight": weight})
        assert np.all(plan.problem.groups.sum(plan.bandwidth_share) <= 1 + 1e-12)
        for k in range(4):
            here = problem.edge == k
            p = problem.subset(here)
            compute_ms = 1e3 * (p.seconds_per_weight * 43_888 + p.extra_seconds)
            uplink_ms = 1e3 * (64 * 43_888 + p.fixed_bits) / p.full_band_rate_bps
            full_mj = KAPPA * p.limits.cpu_hz_max**3 * compute_ms  # at full clock; κ D³ / τ² grows from there
            tau, s, end = cp.Variable(3), cp.Variable(3), cp.Variable()
            energy_mj = cp.sum(cp.multiply(full_mj * compute_ms**2, cp.power(tau, -2))) + FULL_POWER_W * cp.sum(s)
            limits_met = [tau >= compute_ms, tau + s <= end, cp.sum(cp.multiply(uplink_ms, cp.inv_pos(s))) <= 1]
            found = cp.Problem(cp.Minimize(energy_mj + weight * end), limits_met).solve(solver=cp.CLARABEL)
            ours = 1e3 * (plan.energy_j[here].sum() + weight * plan.edge_latency_s[k])
            assert ours == pytest.approx(found, rel=1e-6) and ours <= found * (1 + 1e-7)  # the solver's own accuracy


def test_a_device_out_of_reach_makes_its_edge_wait_forever_and_no_other():
    rate = np.array([300e6, 0.0, 200e6, 250e6])
    plan = ap.plan(three(full_band_rate_bps=rate, edge=np.array([0, 0, 1, 1])), "hfel")
    assert np.isinf(plan.edge_latency_s[0]) and plan.edge_latency_s[1] < 0.1
    np.testing.assert_array_equal(plan.bandwidth_share[:2], [0.5, 0.5])
