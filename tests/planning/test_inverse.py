"""The smallest deadline or band that keeps pruning below a target."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import brentq

import airprune as ap
from support.each import each
from support.fleets import paper_fleet, random_fleet

STATISTIC = {"mean": np.mean, "max": np.max}
RESERVES = {"fixed_bits": 25_168.0, "extra_seconds": 0.001}


@each(("statistic", "reserves"), [("mean", {}), ("max", RESERVES)])
@each("scheme", ["optimal", "equal-resolved", "min-max"])
@each("target", [0.0, 0.2, 0.5, 0.9])
def test_deadline_reaches_the_target_and_a_shorter_one_does_not(statistic, scheme, target, reserves):
    problem = paper_fleet(**reserves)
    answer = ap.smallest_deadline_s(problem, target_pruning=target, statistic=statistic, scheme=scheme)

    def value(deadline_s: float) -> float:
        plan = ap.plan(dataclasses.replace(problem, deadline_s=deadline_s), scheme)
        return np.inf if plan.failed.any() else float(STATISTIC[statistic](plan.pruning_ratio))

    assert value(answer.value) <= target
    assert value(answer.value * (1 - 1e-8)) > target  # ten times the stated tolerance
    assert np.all(answer.plan.problem.deadline_s == answer.value)


@each(("statistic", "reserves"), [("mean", {}), ("max", RESERVES)])
@each("scheme", ["optimal", "equal-resolved", "min-max"])
@each("target", [0.0, 0.2, 0.5, 0.9])
def test_bandwidth_reaches_the_target_and_a_narrower_one_does_not(statistic, scheme, target, reserves):
    problem = paper_fleet(**reserves)
    answer = ap.smallest_bandwidth_hz(
        problem, bandwidth_hz=20e6, target_pruning=target, statistic=statistic, scheme=scheme
    )

    def value(bandwidth_hz: float) -> float:
        rates = problem.full_band_rate_bps * (bandwidth_hz / 20e6)
        plan = ap.plan(dataclasses.replace(problem, full_band_rate_bps=rates), scheme)
        return np.inf if plan.failed.any() else float(STATISTIC[statistic](plan.pruning_ratio))

    assert value(answer.value * (1 + 1e-12)) <= target
    assert value(answer.value * (1 - 1e-8)) > target


def test_deadline_matches_a_root_finder_on_random_fleets():
    for seed in range(10):
        problem = random_fleet(np.random.default_rng(seed), num_devices=20)
        problem = dataclasses.replace(problem, min_pruning_ratio=0.0, max_pruning_ratio=0.95)
        smallest = ap.plan(problem).min_deadline_s[0]

        def excess(deadline, problem=problem):
            return ap.plan(dataclasses.replace(problem, deadline_s=deadline)).mean_pruning_ratio - 0.4

        answer = ap.smallest_deadline_s(problem, target_pruning=0.4)
        if excess(smallest) <= 0:
            assert answer.value == smallest
        else:
            expected = brentq(excess, smallest, smallest * 1e9, rtol=1e-12, xtol=1e-300)
            assert answer.value == pytest.approx(expected, rel=2e-9)  # twice the stated tolerance


def test_a_target_above_the_cap_asks_only_for_feasibility():
    answer = ap.smallest_deadline_s(paper_fleet(max_pruning_ratio=0.6), target_pruning=0.7)
    assert answer.value == ap.plan(paper_fleet(max_pruning_ratio=0.6)).min_deadline_s[0]


def test_no_band_helps_a_slow_cpu():
    slow = paper_fleet(seconds_per_weight=0.030 / 30_000)  # only 30,000 of 43,888 weights can be trained in time
    with pytest.raises(ap.Infeasible, match=r"No bandwidth brings the mean pruning ratio to 0.1 .* stays at 0.55"):
        ap.smallest_bandwidth_hz(slow, bandwidth_hz=20e6, target_pruning=0.1)


def test_wrong_questions_are_refused():
    with pytest.raises(ap.InvalidValue, match=r"target_pruning must be in \[0, 1\], got 1.5"):
        ap.smallest_deadline_s(paper_fleet(), target_pruning=1.5)
    with pytest.raises(ap.InvalidValue, match=r"at least the mean of min_pruning_ratio, 0.3"):
        ap.smallest_deadline_s(paper_fleet(min_pruning_ratio=0.3), target_pruning=0.1)
    with pytest.raises(ap.UsageError, match="statistic 'median' is unknown"):
        ap.smallest_deadline_s(paper_fleet(), target_pruning=0.1, statistic="median")
    with pytest.raises(ap.InvalidValue, match="bandwidth_hz must be > 0"):
        ap.smallest_bandwidth_hz(paper_fleet(), bandwidth_hz=0.0, target_pruning=0.1)
    with pytest.raises(ap.Infeasible, match="no uplink rate"):
        ap.smallest_deadline_s(paper_fleet(full_band_rate_bps=[0.0] * 5), target_pruning=0.1)
