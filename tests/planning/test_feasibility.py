"""When there is no plan: the status, the devices, the deadline that works."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import brentq

import airprune as ap
from support.each import each
from support.fleets import paper_fleet, random_fleet


def test_a_device_too_slow_to_train_is_named():
    slow = paper_fleet(seconds_per_weight=np.array([1e-8, 1e-8, 1.0, 1e-8, 1e-8]))
    plan = ap.plan(slow)
    assert plan.status[0] == "infeasible-compute"
    assert list(plan.blocking_devices) == [False, False, True, False, False]
    with pytest.raises(ap.Infeasible, match=r"Edge 0 has no plan for 30 ms: too slow .* blocked by 2; .* works is"):
        plan.raise_if_failed()
    assert np.all(np.isnan(plan.bandwidth_share)) and np.all(np.isnan(plan.pruning_ratio))


def test_too_little_band_names_the_fewest_devices_that_block():
    plan = ap.plan(paper_fleet(deadline_s=0.020))
    assert plan.status[0] == "infeasible-bandwidth"
    assert list(np.flatnonzero(plan.blocking_devices)) == [4]  # the farthest needs most; without it the rest fits
    index = np.flatnonzero(~plan.blocking_devices)
    rest = ap.plan(paper_fleet(deadline_s=0.020, full_band_rate_bps=plan.problem.full_band_rate_bps[index]))
    assert rest.status[0] == "ok"


def test_only_the_blocked_edge_fails():
    problem = paper_fleet(edge=np.array([3, 3, 3, 9, 9]), seconds_per_weight=np.array([0, 0, 0, 1.0, 0]))
    plan = ap.plan(problem)
    assert list(plan.status) == ["ok", "infeasible-compute"]
    assert list(np.isnan(plan.pruning_ratio)) == [False, False, False, True, True]
    assert list(plan.failed) == [False, True]


def test_an_unreachable_device_has_no_deadline():
    plan = ap.plan(paper_fleet(full_band_rate_bps=np.array([1e8, 0.0, 1e8, 1e8, 1e8])))
    assert plan.failed[0] and np.isinf(plan.min_deadline_s[0])
    with pytest.raises(ap.Infeasible, match="no deadline works"):
        plan.raise_if_failed()


def test_fixed_bits_that_exceed_the_band_block_whatever_is_pruned():
    """100 Mbit/s carry 3 Mbit in 30 ms; the mask of device 1 alone has 4."""
    bits = np.array([1e5, 4e6])
    problem = ap.PlanProblem(full_band_rate_bps=1e8, seconds_per_weight=0.0, conv_weights=0, fixed_bits=bits)
    plan = ap.plan(problem)
    assert plan.status[0] == "infeasible-bandwidth"
    assert list(plan.blocking_devices) == [False, True]
    assert plan.min_deadline_s[0] == pytest.approx(4.1e6 / 1e8, rel=1e-14)  # nothing but the fixed bits
    enough = ap.plan(dataclasses.replace(problem, deadline_s=0.042)).raise_if_failed()
    assert enough.bandwidth_share.sum() == pytest.approx(1.0, rel=1e-14)


def test_extra_seconds_beyond_the_deadline_block_even_a_device_that_sends_nothing():
    problem = paper_fleet(conv_weights=0, extra_seconds=np.array([0.0, 0.0, 0.031, 0.0, 0.0]))
    plan = ap.plan(problem)
    assert plan.status[0] == "infeasible-compute"
    assert list(np.flatnonzero(plan.blocking_devices)) == [2]
    assert plan.min_deadline_s[0] == 0.031
    assert ap.plan(problem.subset(~plan.blocking_devices)).status[0] == "ok"


@each("reserved", [False, True])
@each("seed", range(20))
def test_smallest_deadline_matches_a_root_finder(seed, reserved):
    problem = random_fleet(np.random.default_rng(seed), num_devices=30, reserved=reserved)
    weights = problem.conv_weights + (1 - problem.max_pruning_ratio) * problem.fc_weights
    compute = problem.seconds_per_weight * weights + problem.extra_seconds
    uplink = (problem.bits_per_weight * weights + problem.fixed_bits) / problem.full_band_rate_bps

    def overspent(log_slack: float) -> float:
        deadline = compute.max() + np.exp(log_slack)
        return float(np.log(np.sum(uplink / (deadline - compute))))

    low, high = np.log((compute + uplink).max() * 1e-16), np.log(2 * (compute.max() + uplink.sum()))
    expected = compute.max() + np.exp(brentq(overspent, low, high, xtol=1e-13, rtol=1e-14))
    assert ap.plan(problem).min_deadline_s[0] == pytest.approx(expected, rel=1e-11)  # of the root finder


@each("reserved", [False, True])
@each("seed", range(20))
def test_the_smallest_deadline_has_a_plan_and_a_smaller_one_has_none(seed, reserved):
    problem = random_fleet(np.random.default_rng(seed), num_devices=60, num_edges=4, reserved=reserved)
    smallest = ap.plan(problem).min_deadline_s
    at = ap.plan(dataclasses.replace(problem, deadline_s=problem.groups.spread(smallest)))
    assert set(at.status) == {"ok"}
    below = ap.plan(dataclasses.replace(problem, deadline_s=problem.groups.spread(smallest * (1 - 1e-12))))
    assert "ok" not in set(below.status)


def test_the_printed_deadline_works_when_typed():
    plan = ap.plan(paper_fleet(deadline_s=0.001))
    words = plan.failure(0)
    printed_ms = float(words.rsplit("works is ", 1)[1].removesuffix(" ms."))
    assert ap.plan(paper_fleet(deadline_s=printed_ms / 1e3)).status[0] == "ok"
    assert printed_ms / 1e3 == pytest.approx(plan.min_deadline_s[0], rel=2e-5)  # six digits


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deadline_s": -1}, r"PlanProblem\.deadline_s must be > 0, got -1\. Example: deadline_s=0\.03"),
        ({"deadline_s": float("nan")}, "deadline_s must be finite and > 0, got nan"),
        ({"full_band_rate_bps": [1e8, -1.0]}, "full_band_rate_bps must be ≥ 0, got -1 at entry 1"),
        ({"full_band_rate_bps": [[1e8]]}, "one-dimensional"),
        ({"full_band_rate_bps": "fast"}, "must be a number"),
        ({"full_band_rate_bps": []}, "at least one device"),
        ({"max_pruning_ratio": 1.5}, r"max_pruning_ratio must be in \[0, 1\], got 1\.5"),
        ({"min_pruning_ratio": 0.6, "max_pruning_ratio": 0.5}, "must be ≤ max_pruning_ratio"),
        ({"edge": [0.5, 1.0, 2.0, 3.0, 4.0]}, "edge must hold integer ids"),
        ({"objective_weight": 0.0}, "objective_weight must be > 0"),
        ({"seconds_per_weight": [1.0, 2.0]}, "needs arrays of one length"),
        ({"bits_per_weight": 0.0}, r"bits_per_weight must be > 0 where fixed_bits is 0, got 0 for device 0"),
        ({"fixed_bits": -1.0}, r"fixed_bits must be ≥ 0, got -1"),
        ({"extra_seconds": [0.0, 0.0, -1.0, 0.0, 0.0]}, r"extra_seconds must be ≥ 0, got -1 at entry 2"),
    ],
)
def test_a_wrong_problem_is_refused_in_one_sentence(change, message):
    with pytest.raises(ap.InvalidValue, match=message):
        paper_fleet(**change)


def test_a_subset_keeps_every_field_of_its_devices():
    problem = random_fleet(np.random.default_rng(3), num_devices=9, num_edges=2, reserved=True)
    mask = np.arange(9) % 2 == 0
    for part in (problem.subset(mask), problem.subset(np.flatnonzero(mask))):
        for field in dataclasses.fields(problem):
            if getattr(problem, field.name) is not None:
                np.testing.assert_array_equal(getattr(part, field.name), getattr(problem, field.name)[mask])
    np.testing.assert_array_equal(problem.fixed_weights, problem.conv_weights)
    np.testing.assert_array_equal(problem.prunable_weights, problem.fc_weights)


def test_a_problem_cannot_be_changed_behind_a_plans_back():
    rate = np.full(3, 1e8)
    problem = ap.PlanProblem(full_band_rate_bps=rate, seconds_per_weight=0.0)
    with pytest.raises(ValueError, match="read-only"):
        problem.full_band_rate_bps[0] = 1.0
