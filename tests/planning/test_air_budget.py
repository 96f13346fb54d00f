"""Shares and bits per weight together: against brute force and a linear program; deadline, energy, the fair form."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import airprune as ap
from airprune.planning import DeviceLimits, Ladder, Status
from airprune.planning.deadline import auto_deadline_s, measured_kappa
from support.fleets import paper_fleet

LADDER = Ladder([0.25, 1.0, 2.0, 4.0, 8.0], [0.7, 0.5, 0.2, 0.03, 0.0003])


def fleet(rng, num_devices, num_edges=1, **changes) -> ap.PlanProblem:
    return ap.PlanProblem(
        **{
            "full_band_rate_bps": 10.0 ** rng.uniform(6.5, 8.5, num_devices),
            "seconds_per_weight": 40 / rng.uniform(0.5e9, 3e9, num_devices),
            "edge": rng.integers(num_edges, size=num_devices),
            "bits_per_weight": 0.25,
            "fixed_bits": rng.uniform(0, 500, num_devices),
            "deadline_s": 10.0 ** rng.uniform(-2.6, -1.7),
            "objective_weight": rng.uniform(0.5, 2, num_devices),
            "ladder": LADDER,
            **changes,
        }
    )


def shares_needed(problem: ap.PlanProblem, bits_per_weight) -> np.ndarray:
    """(R W + e) / (r (T − a W − x)), written out once more."""
    weights = problem.conv_weights + problem.fc_weights
    left_s = problem.deadline_s - problem.seconds_per_weight * weights - problem.extra_seconds
    return (bits_per_weight * weights + problem.fixed_bits) / (problem.full_band_rate_bps * left_s)


def loss_of(problem: ap.PlanProblem, plan: ap.Plan) -> float:
    return float(np.sum(problem.objective_weight * LADDER.error[plan.code]))


def whole_models(plan: ap.Plan) -> bool:
    return bool(np.all(plan.status == Status.OK) and np.all(plan.pruning_ratio == 0.0))


def test_on_random_fleets_nothing_is_better_by_more_than_the_one_step_that_did_not_fit():
    rng = np.random.default_rng(3)
    compared = 0
    for _ in range(120):
        problem = fleet(rng, int(rng.integers(1, 6)))
        plan = ap.plan(problem, "air-budget")
        if not whole_models(plan):
            continue
        need = np.array([shares_needed(problem, bits) for bits in LADDER.bits_per_weight])  # [codes, devices]
        best = min(
            sum(problem.objective_weight[n] * LADDER.error[code] for n, code in enumerate(codes))
            for codes in itertools.product(range(5), repeat=problem.num_devices)
            if sum(need[code, n] for n, code in enumerate(codes)) <= 1.0
        )
        on_hull = np.searchsorted(LADDER.hull, plan.code)
        next_code = LADDER.hull[np.minimum(on_hull + 1, len(LADDER.hull) - 1)]
        step = np.max(problem.objective_weight * (LADDER.error[plan.code] - LADDER.error[next_code]))
        assert best - 1e-12 <= loss_of(problem, plan) <= best + step + 1e-12
        compared += 1
    assert compared > 60


def test_on_random_fleets_it_is_within_one_step_of_the_linear_programs_bound():
    rng = np.random.default_rng(4)
    for _ in range(25):
        problem = fleet(rng, int(rng.integers(20, 60)), deadline_s=0.02, full_band_rate_bps=1e8)
        problem = dataclasses.replace(problem, full_band_rate_bps=10.0 ** rng.uniform(7.5, 8.5, problem.num_devices))
        plan = ap.plan(problem, "air-budget")
        assert whole_models(plan)
        count = problem.num_devices
        need = np.array([shares_needed(problem, bits) for bits in LADDER.bits_per_weight]).T  # [devices, codes]
        cost = (problem.objective_weight[:, None] * LADDER.error).ravel()
        one_each = np.kron(np.eye(count), np.ones(5))
        found = linprog(cost, A_ub=need.ravel()[None], b_ub=[1.0], A_eq=one_each, b_eq=np.ones(count))
        largest_step = np.max(problem.objective_weight) * 0.5
        assert found.fun - 1e-9 <= loss_of(problem, plan) <= found.fun + largest_step


@pytest.mark.parametrize("fair", [False, True])
def test_band_and_deadline_are_kept_on_every_edge(fair):
    rng = np.random.default_rng(5)
    for _ in range(60):
        problem = fleet(rng, int(rng.integers(1, 200)), num_edges=7)
        plan = ap.plan(problem, "air-budget", {"fair": fair})
        ok = problem.groups.spread(plan.status == Status.OK)
        assert np.all(problem.groups.sum(np.where(ok, plan.bandwidth_share, 0.0)) <= 1.0)
        assert np.all(plan.latency_s[ok] <= problem.deadline_s[ok] * (1 + 1e-12))


def test_the_fair_form_has_the_largest_least_number_of_bits():
    rng = np.random.default_rng(6)
    for _ in range(60):
        problem = fleet(rng, int(rng.integers(1, 12)))
        plan = ap.plan(problem, "air-budget", {"fair": True})
        if not whole_models(plan):
            continue
        hull = LADDER.hull
        possible = [code for code in hull if shares_needed(problem, LADDER.bits_per_weight[code]).sum() <= 1 - 1e-12]
        assert plan.code.min() == max(possible)


def test_where_the_cheapest_code_does_not_fit_the_paper_decides_what_goes():
    rng = np.random.default_rng(7)
    problem = fleet(rng, 8, full_band_rate_bps=np.full(8, 1.0e7), deadline_s=0.009, fixed_bits=0.0)
    plan, paper = ap.plan(problem, "air-budget"), ap.plan(problem, "optimal")
    assert np.any(paper.pruning_ratio > 0)
    np.testing.assert_array_equal(plan.pruning_ratio, paper.pruning_ratio)
    np.testing.assert_array_equal(plan.bandwidth_share, paper.bandwidth_share)
    assert np.all(plan.code == 0) and np.all(plan.bits_per_weight == 0.25)


def test_without_a_ladder_there_is_one_code():
    plan = ap.plan(paper_fleet(deadline_s=0.08), "air-budget")
    assert np.all(plan.bits_per_weight == 64.0) and whole_models(plan)


def test_an_energy_budget_shortens_the_upload_and_nobody_exceeds_it():
    rng = np.random.default_rng(8)
    rates = 10.0 ** rng.uniform(7.5, 8.5, 10)
    limits = DeviceLimits(cpu_hz_max=2e9, power_w_max=0.6, bandwidth_hz=20e6, energy_j=0.012)
    free = ap.plan(fleet(rng, 10, full_band_rate_bps=rates, seconds_per_weight=2e-8, deadline_s=0.03), "air-budget")
    tight = ap.plan(dataclasses.replace(free.problem, limits=limits), "air-budget")
    assert np.all(tight.energy_j <= 0.012 * (1 + 1e-12)) and whole_models(tight)
    assert tight.bits_per_weight.sum() < free.bits_per_weight.sum()
    assert np.any(dataclasses.replace(free, problem=tight.problem).energy_j > 0.012)


def test_a_device_without_energy_for_its_training_blocks_its_edge():
    limits = DeviceLimits(cpu_hz_max=2e9, power_w_max=0.6, bandwidth_hz=20e6, energy_j=[1.0, 1e-6, 1.0])
    problem = fleet(np.random.default_rng(1), 3, full_band_rate_bps=1e8, seconds_per_weight=2e-8, limits=None)
    plan = ap.plan(dataclasses.replace(problem, limits=limits), "air-budget")
    assert plan.status.tolist() == [Status.INFEASIBLE_ENERGY]
    assert plan.blocking_devices.tolist() == [False, True, False]


def test_pruning_does_not_get_around_an_energy_budget():
    """All can train, but the first two have too little energy left to send even the cheapest code on one band."""
    rng = np.random.default_rng(4)
    budget = np.array([0.0055, 0.0055, 1.0, 1.0])
    limits = DeviceLimits(cpu_hz_max=2e9, power_w_max=0.6, bandwidth_hz=20e6, energy_j=budget)
    rates = np.array([2e6, 2e6, 2e8, 2e8])
    problem = fleet(rng, 4, full_band_rate_bps=rates, edge=[0, 0, 1, 1], seconds_per_weight=2e-8, deadline_s=0.2)
    free = ap.plan(problem, "air-budget")
    assert whole_models(free)
    plan = ap.plan(dataclasses.replace(problem, limits=limits), "air-budget")
    assert plan.status.tolist() == [Status.OK, Status.OK]
    assert np.all(plan.energy_j <= budget * (1 + 1e-12)) and np.all(plan.latency_s <= 0.2 * (1 + 1e-12))
    assert np.all(plan.cpu_hz[2:] == 2e9) and np.all(plan.power_w[2:] == 0.6) and np.all(plan.power_w[:2] < 0.6)


def test_rungs_off_the_lower_hull_are_never_chosen():
    ladder = Ladder([1.0, 2.0, 3.0, 4.0, 5.0], [0.5, 0.49, 0.1, 0.2, 0.05])
    assert ladder.hull.tolist() == [0, 2, 4]


def test_a_ladder_must_ascend():
    with pytest.raises(ap.UsageError, match=r"Ladder\.bits_per_weight must ascend"):
        Ladder([1.0, 1.0], [0.5, 0.4])


def test_it_is_the_same_for_any_order_of_devices():
    rng = np.random.default_rng(9)
    problem = fleet(rng, 50, num_edges=4)
    shuffled = rng.permutation(50)
    plan, again = ap.plan(problem, "air-budget"), ap.plan(problem.subset(shuffled), "air-budget")
    np.testing.assert_array_equal(plan.code[shuffled], again.code)


# Deadlines that tune themselves


@pytest.mark.parametrize("kappa", [0.01, 0.1, 1.0, 10.0])
def test_the_deadline_of_equal_devices_is_that_of_the_square_root_rule(kappa):
    """Equal devices: T = c + s R exactly, so the best rung is a neighbour of R* = √(κ c / s)."""
    bits = np.geomspace(0.1, 32, 40)
    problem = ap.PlanProblem(
        full_band_rate_bps=np.full(5, 2e8),
        seconds_per_weight=2e-8,
        bits_per_weight=bits[0],
        ladder=Ladder(bits, np.geomspace(0.8, 1e-6, 40)),
    )
    weights = 43_888
    found_s = auto_deadline_s(problem, lambda changed: ap.plan(changed, "air-budget"), kappa)
    compute_s, per_bit_s = 2e-8 * weights, 5 * weights / 2e8
    best = np.sqrt(kappa * compute_s / per_bit_s)  # R*, where the product of latency and rounds is least
    found = (found_s - compute_s) / per_bit_s
    rung = bits[1] / bits[0]
    assert 1 / rung <= found / max(best, bits[0]) <= rung


def test_the_deadline_is_the_best_of_a_fine_grid_or_nearly_so():
    rng = np.random.default_rng(10)
    for _ in range(8):
        problem = fleet(rng, 25, num_edges=5, full_band_rate_bps=10.0 ** rng.uniform(7.5, 8.5, 25))
        kappa = float(10.0 ** rng.uniform(-1.5, 0.5))

        def cost(deadline_s, problem=problem, kappa=kappa):
            plan = ap.plan(dataclasses.replace(problem, deadline_s=deadline_s), "air-budget")
            if not whole_models(plan):
                return np.inf
            return np.max(plan.latency_s) * np.mean(1 + kappa / plan.bits_per_weight)

        found = auto_deadline_s(problem, lambda changed: ap.plan(changed, "air-budget"), kappa)
        assert cost(found) <= 1.15 * min(cost(deadline) for deadline in np.geomspace(1e-3, 0.2, 200))


def test_nobody_waits_for_a_device_without_uplink():
    rates = np.array([2e8, 1.5e8, 0.0, 1e8])
    problem = fleet(np.random.default_rng(2), 4, full_band_rate_bps=rates, objective_weight=1.0, fixed_bits=64.0)

    def auto(given: ap.PlanProblem) -> float:
        return auto_deadline_s(given, lambda changed: ap.plan(changed, "air-budget"), 0.3)

    assert auto(problem) == auto(problem.subset([0, 1, 3]))
    assert auto(dataclasses.replace(problem, full_band_rate_bps=0.0, deadline_s=0.5)) == 0.5


def test_a_device_without_energy_does_not_decide_the_deadline():
    limits = DeviceLimits(cpu_hz_max=2e9, power_w_max=0.6, bandwidth_hz=20e6, energy_j=[1.0, 1e-6, 1.0])
    problem = fleet(np.random.default_rng(1), 3, full_band_rate_bps=1e8, edge=[0, 0, 1], seconds_per_weight=2e-8)
    problem = dataclasses.replace(problem, limits=limits)
    assert 0 < auto_deadline_s(problem, lambda changed: ap.plan(changed, "air-budget"), 0.3) < 1


def test_kappa_is_the_wait_of_what_a_code_loses():
    """Half of the energy delivered per round: one round of waiting, at 2 bits."""
    assert measured_kappa(np.array([2.0]), np.array([0.5])) == pytest.approx(2.0)
    assert measured_kappa(np.array([2.0, 4.0]), np.array([0.5, 0.0])) == pytest.approx(1.0)


def test_more_bits_that_lose_as_much_are_no_rung():
    assert Ladder([1.0, 2.0, 3.0, 4.0], [0.5, 0.2, 0.2, 0.2]).hull.tolist() == [0, 1]
