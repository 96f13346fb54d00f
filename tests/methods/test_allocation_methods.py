"""Schemes that choose time, clock, power and blocks: hand values, independent solvers, limit cases."""

from __future__ import annotations

import dataclasses
import itertools

import cvxpy as cp
import numpy as np
import pytest
from scipy import optimize

import airprune as ap
from airprune.methods.selection import SELECTIONS
from airprune.methods.selection.base import Candidates, known_rates
from airprune.methods.selection.ratio_cap import set_costs
from airprune.planning import DeviceLimits
from airprune.planning.limits import full_band_rate_at
from airprune.planning.matching import assigned, greedily_assigned, smallest_worst
from airprune.units import dbm_to_watt
from airprune.wireless.channel import Radio
from airprune.wireless.channels.base import FadingView, block_gains
from airprune.wireless.channels.block_fading import BlockFading
from support.tiny import blobs, tiny_scenario

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
    selection, stays = SELECTIONS["ratio-cap"](**options), np.arange(len(rate))
    while True:
        problem = four(deadline_s, np.asarray(rate)[stays])
        candidates = Candidates(
            device=stays,
            edge=problem.edge,
            rates_bps=known_rates(stays, problem.full_band_rate_bps),
            num_samples=np.ones(len(stays)),
            round_index=0,
            rng=np.random.default_rng(0),
        )
        kept = selection.after(candidates, ap.plan(problem))
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


# Energy budgets (PHFL); more in test_energy.py


def test_transmit_energy_rises_with_power():
    """1000/W, 20/3 MHz, the paper's model: 1.2179, 42.4518 and 76.8385 mJ at 10 mW, 1.005 W and 2 W."""
    problem = three(full_band_rate_bps=20e6 * np.log2(1 + 1000 * 2), limits=limits(power_w_max=2.0))
    bits = 64 * 43_888
    for power_w, expected_mj in ((0.01, 1.2179), (1.005, 42.4518), (2.0, 76.8385)):
        seconds = bits / (full_band_rate_at(problem, np.full(problem.num_devices, power_w)) / 3)
        np.testing.assert_allclose(1e3 * power_w * seconds, expected_mj, atol=6e-5)


def test_phfl_keeps_deadline_and_budget_on_four_tiers():
    scenario = tiny_scenario(
        method="phfl",
        plan__deadline_s=0.0003,
        plan__max_energy_j=3e-5,
        network__cpu_hz_max=5e9,
        rounds__global_rounds=1,
    )
    records = list(ap.run(scenario, dataset=blobs()))
    assert {record["level"] for record in records if record["kind"] == "node"} == {1, 2}
    for record in (record for record in records if record["kind"] == "edge"):
        total_s = np.array(record["compute_s"]) + np.array(record["uplink_s"])
        assert total_s.max() <= 0.0003 * (1 + 1e-9) and max(record["device_energy_j"]) <= 3e-5 * (1 + 1e-9)
        assert record["mean_pruning_ratio"] > 0


# Blocks (Ren et al., Al-Abiad et al.)


def test_blocks_go_to_those_who_need_them_by_the_hungarian_method():
    cost = np.array([[4, 9, 3, 8], [2, 5, 2.5, 7], [6, 1, 5, 4]])
    assert assigned(cost).tolist() == [2, 0, 1] and cost[[0, 1, 2], [2, 0, 1]].sum() == 6.0


def test_the_greedy_independent_set_may_cost_three_times_the_best():
    cost = np.array([[1, 2], [1.5, 10]])
    rows = np.arange(2)
    assert cost[rows, assigned(cost)].sum() == 3.5
    assert cost[rows, greedily_assigned(cost)].sum() == 11.0


def test_assignments_are_those_of_scipy_also_where_some_are_impossible():
    rng = np.random.default_rng(0)
    for number in range(60):
        shape = (6, 8) if number < 20 else tuple(rng.integers(1, 8, size=2))
        cost = rng.uniform(-1, 1, shape) if number % 2 else rng.integers(0, 4, shape).astype(float)
        if number >= 30:
            cost[rng.random(shape) < 0.5] = np.inf
        column = assigned(cost)
        rows = np.flatnonzero(column >= 0)
        assert len(set(column[rows].tolist())) == len(rows)
        with_never = np.where(np.isfinite(cost), cost, 1e3)
        expected = with_never[optimize.linear_sum_assignment(with_never)]
        assert len(rows) == np.count_nonzero(expected < 1e3)
        assert cost[rows, column[rows]].sum() == pytest.approx(expected[expected < 1e3].sum(), abs=1e-9)
        bounds = np.unique(cost[np.isfinite(cost)])
        covered = [b for b in bounds if np.all(assigned(np.where(cost <= b, 0.0, np.inf)) >= 0)]
        assert smallest_worst(cost) == min(covered, default=np.inf)


def faded(rng: np.random.Generator, count: int, blocks: int, **changes) -> ap.PlanProblem:
    """Devices of one edge whose blocks fade on their own."""
    mean_rate = rng.uniform(150e6, 320e6, count)
    snr = (2 ** (mean_rate / 20e6) - 1)[:, None] * rng.exponential(size=(count, blocks))
    return random_fleet(rng, count, full_band_rate_bps=mean_rate, block_rate_bps=20e6 * np.log2(1 + snr), **changes)


def grid_cost(problem: ap.PlanProblem, n: int, block: int, blocks: int, weights: float, lambdas) -> float:
    """The least λ_e E + λ_t T of a device in a block, over a grid of clocks and powers that meet the deadline."""
    p, energy_weight, time_weight = problem, *lambdas
    cycles = (p.seconds_per_weight[n] * weights + p.extra_seconds[n]) * p.limits.cpu_hz_max[n]
    clock = p.limits.cpu_hz_max[n] * np.linspace(0, 1, 401)[1:, None]
    power = p.limits.power_w_max[n] * np.linspace(0, 1, 401)[None, 1:] ** 3
    snr = 2 ** (p.block_rate_bps[n, block] / 20e6) - 1
    uplink_s = (64 * weights + p.fixed_bits[n]) * blocks / (20e6 * np.log2(1 + snr * power / p.limits.power_w_max[n]))
    time_s = cycles / clock + uplink_s
    cost = energy_weight * (KAPPA * clock**2 * cycles + power * uplink_s) + time_weight * time_s
    return float(cost[time_s <= p.deadline_s[n]].min())


@pytest.mark.parametrize("deadline_s", [0.05, 10.0])
def test_no_blocks_clocks_and_powers_cost_less_than_those_of_ren2021(deadline_s):
    """Brute force over the assignments, a grid over clock and power; models are pruned as the blocks need."""
    problem = faded(np.random.default_rng(4), 4, 5, deadline_s=deadline_s, max_pruning_ratio=0.95)
    plan = ap.plan(problem, "ren2021", {"spare_blocks": 1})
    assert plan.status[0] == "ok" and len(set(plan.block.tolist())) == 4 and np.all(plan.bandwidth_share == 1 / 5)
    ours = float((plan.energy_j + plan.latency_s + plan.pruning_ratio).sum())
    table = np.full((4, 5), np.inf)
    for n, block in itertools.product(range(4), range(5)):
        alone = dataclasses.replace(problem.subset([n]), full_band_rate_bps=problem.block_rate_bps[n, block] / 5)
        whole = ap.plan(dataclasses.replace(alone, limits=None, block_rate_bps=None), "equal-resolved")
        if not whole.failed.any():
            ratio = float(whole.pruning_ratio[0])
            weights = (18_720 + (1 - ratio) * 25_168) * (1 - 1e-12)
            table[n, block] = ratio + grid_cost(problem, n, block, 5, weights, (1.0, 1.0))
    best = min(sum(table[n, block] for n, block in enumerate(places)) for places in itertools.permutations(range(5), 4))
    assert ours <= best * (1 + 1e-9)
    assert ours == pytest.approx(best, rel=5e-3)  # the grid's coarseness


def test_without_a_deadline_clock_and_power_solve_their_equations():
    problem = faded(np.random.default_rng(5), 3, 3, deadline_s=1e6)
    weights = {"energy_weight": 2.0, "time_weight": 0.02}
    plan = ap.plan(problem, "ren2021", weights)
    np.testing.assert_allclose(plan.cpu_hz, (0.02 / (2 * KAPPA * 2.0)) ** (1 / 3), rtol=1e-12)
    gamma = (2 ** (plan.problem.full_band_rate_bps / 20e6) - 1) / FULL_POWER_W
    grown = 1 + gamma * plan.power_w
    np.testing.assert_allclose(2.0 * grown * np.log(grown), gamma * (2.0 * plan.power_w + 0.02), rtol=1e-9)
    hurried = ap.plan(problem, "ren2021", {"energy_weight": 0.0})
    assert np.all(hurried.power_w == FULL_POWER_W) and np.all(hurried.cpu_hz == problem.limits.cpu_hz_max)


def test_where_blocks_are_alike_any_assignment_costs_the_same():
    problem = three(deadline_s=0.05)
    alike = dataclasses.replace(problem, block_rate_bps=np.tile(problem.full_band_rate_bps[:, None], (1, 3)))
    plain, blocks = ap.plan(problem, "ren2021"), ap.plan(alike, "ren2021")
    np.testing.assert_array_equal(plain.energy_j, blocks.energy_j)
    np.testing.assert_array_equal(plain.pruning_ratio, blocks.pruning_ratio)


def test_whole_models_on_blocks_take_the_least_energy_of_all_assignments():
    rng = np.random.default_rng(6)
    for _ in range(4):
        problem = faded(rng, 4, 4, deadline_s=0.15)
        exact = ap.plan(problem, "conflict-graph", {"whole_models": True})
        greedy = ap.plan(problem, "conflict-graph", {"whole_models": True, "search": "greedy"})
        assert exact.status[0] == greedy.status[0] == "ok"
        np.testing.assert_allclose(exact.latency_s, 0.15, rtol=1e-9)  # all of the time is used
        assert exact.energy_j.sum() <= greedy.energy_j.sum() * (1 + 1e-12)
        table = [[grid_cost(problem, n, s, 4, 43_888, (1.0, 0.0)) for s in range(4)] for n in range(4)]
        best = min(sum(table[n][s] for n, s in enumerate(places)) for places in itertools.permutations(range(4)))
        assert exact.energy_j.sum() <= best * (1 + 1e-9)
        assert exact.energy_j.sum() == pytest.approx(best, rel=1e-2)  # the grid's coarseness
        full = ap.plan(problem, "no-pruning").energy_j.sum()
        assert exact.energy_j.sum() < 0.2 * full  # rate is bought exponentially dear


def test_without_a_deadline_everybody_takes_the_slowest_clock_and_the_least_power():
    slow = limits(cpu_hz_min=1e8, power_w_min=1e-4)
    plan = ap.plan(three(deadline_s=1e9, limits=slow), "conflict-graph")
    assert np.all(plan.cpu_hz == 1e8) and np.all(plan.power_w == 1e-4) and not plan.pruning_ratio.any()


def test_devices_without_a_block_that_serves_them_are_left_out_and_named():
    rates = np.array([[300e6, 300e6, 300e6], [300e6, 1e6, 1e6], [300e6, 1e6, 1e6]])
    for scheme in ("ren2021", "conflict-graph"):
        plan = ap.plan(three(block_rate_bps=rates), scheme)
        assert plan.status[0] == "infeasible-bandwidth" and np.count_nonzero(plan.blocking_devices) == 1
        assert 1e3 * plan.min_deadline_s[0] == pytest.approx(1e3 * 18_720 * (40 / 3e9 + 64 * 3 / 1e6), rel=1e-9)
        others = ap.plan(plan.problem.subset(~plan.blocking_devices), scheme)
        assert others.status[0] == "ok" and np.all(others.bandwidth_share == 1 / 2)


def test_schemes_with_blocks_keep_an_energy_budget():
    problem = faded(np.random.default_rng(7), 3, 3, limits=limits(energy_j=4e-3))
    for scheme in ("ren2021", "conflict-graph"):
        plan = ap.plan(problem, scheme)
        assert plan.status[0] == "ok" and plan.energy_j.max() <= 4e-3 * (1 + 1e-9)
        assert plan.latency_s.max() <= 0.030 * (1 + 1e-9)
    poor = ap.plan(dataclasses.replace(problem, limits=limits(energy_j=1e-7)), "ren2021")
    assert poor.status[0] == "infeasible-energy"


@pytest.mark.parametrize("method", ["ren2021", "conflict-graph"])
def test_rounds_use_the_blocks_that_were_assigned(method):
    """Whatever fades, times and energies of the record are those of some block, within the deadline."""
    scenario = tiny_scenario(method=method, radio__fading="rayleigh", plan__deadline_s=0.0004, rounds__global_rounds=1)
    for record in ap.run(scenario, dataset=blobs()):
        if record["kind"] == "edge":
            total_s = np.array(record["compute_s"], dtype=float) + np.array(record["uplink_s"], dtype=float)
            assert np.nanmax(total_s) <= 0.0004 * (1 + 1e-9)
            counts = np.bincount(np.array(record["edge"])[np.array(record["fate"]) != "blocked"])
            for edge, share in zip(record["edge"], record["bandwidth_share"], strict=True):
                assert share is None or share == 1 / counts[edge]


def test_blocks_fade_on_their_own_and_the_first_ones_whatever_follows():
    channel = BlockFading()
    view = FadingView(num_devices=50, radio=Radio(fading="rayleigh"), seed=3, round_index=2)
    gains = block_gains(channel, view, 4)
    np.testing.assert_array_equal(block_gains(channel, view, 2), gains[:, :2])
    assert np.abs(np.corrcoef(gains.T) - np.eye(4)).max() < 0.5 and 0.7 < gains.mean() < 1.3
    assert np.all(block_gains(channel, dataclasses.replace(view, radio=Radio()), 3) == 1.0)
