"""Devices that send at once: groups share the time of their edge, against an independent solver and limit cases."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import airprune as ap
from airprune.errors import InvalidValue
from airprune.planning import DeviceLimits
from support.fleets import paper_fleet, random_fleet, share_needed
from support.oracles import moderate_fleet, oracle_ratio

TAKES = [name for name, scheme in ap.SCHEMES.items() if scheme.takes_groups]


def grouped(rng, problem, *, size=4):
    """The problem with random groups of up to `size` devices, at a deadline at which time binds."""
    group = np.empty(problem.num_devices, dtype=np.int64)
    order = rng.permutation(problem.num_devices)
    for edge in problem.edge_ids:
        own = order[problem.edge[order] == edge]
        group[own] = np.arange(len(own)) // size
    problem = dataclasses.replace(problem, mimo_group=group)
    smallest = ap.plan(problem).min_deadline_s
    stretch = 1.0 + 10.0 ** rng.uniform(-3, 0.5, len(smallest))
    return dataclasses.replace(
        problem, deadline_s=problem.groups.spread(np.where(smallest > 0, smallest, 1e-3) * stretch)
    )


def times(problem, share):
    """Σ over groups of the largest share, written out, for each edge."""
    pairs = {}
    for edge, group, b in zip(problem.edge.tolist(), problem.mimo_group.tolist(), share.tolist(), strict=True):
        pairs[edge, group] = max(pairs.get((edge, group), 0.0), b)
    return np.array([sum(t for (edge, _), t in pairs.items() if edge == k) for k in problem.edge_ids.tolist()])


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("block", range(5))
def test_plan_matches_cvxpy_on_random_fleets(block, reserved):
    rng = np.random.default_rng([51, block])
    for _ in range(10):
        size = int(rng.integers(1, 9))
        problem = moderate_fleet(rng, num_devices=int(np.exp(rng.uniform(0, np.log(60)))), reserved=reserved)
        problem = grouped(rng, problem, size=size)
        plan = ap.plan(problem).raise_if_failed()
        ratio, oracle_error = oracle_ratio(problem, lambda kept: 1 - kept)
        weight = problem.objective_weight
        ours, theirs = float(weight @ plan.pruning_ratio), float(weight @ ratio)
        assert ours - theirs <= 1e-9 * weight.sum() + oracle_error
        assert theirs - ours <= 1e-6 * weight.sum()  # the solver stops before its optimum, never beyond ours


@pytest.mark.parametrize("scheme", TAKES)
def test_every_group_has_one_time_and_edges_never_spend_more_than_all(scheme):
    rng = np.random.default_rng(52)
    for _ in range(30):
        problem = grouped(rng, random_fleet(rng, num_devices=int(rng.integers(1, 80)), num_edges=3))
        plan = ap.plan(problem, scheme)
        ok = problem.groups.spread(plan.status == "ok")
        assert np.all(times(problem, np.nan_to_num(plan.bandwidth_share)) <= 1.0 + 1e-12)
        assert np.all(plan.latency_s[ok] <= problem.deadline_s[ok] * (1 + 1e-9))
        longest = problem.turns.longest(plan.bandwidth_share)
        np.testing.assert_array_equal(plan.bandwidth_share[ok], longest[ok])


@pytest.mark.parametrize("scheme", TAKES)
def test_groups_of_one_are_planned_as_without_groups(scheme):
    rng = np.random.default_rng(53)
    for _ in range(20):
        alone = random_fleet(rng, num_devices=int(rng.integers(1, 40)), num_edges=2)
        problem = dataclasses.replace(alone, mimo_group=rng.permutation(alone.num_devices))
        ours, theirs = ap.plan(problem, scheme), ap.plan(alone, scheme)
        assert ours.status.tolist() == theirs.status.tolist()
        np.testing.assert_allclose(ours.pruning_ratio, theirs.pruning_ratio, atol=1e-9)
        np.testing.assert_allclose(ours.min_deadline_s, theirs.min_deadline_s, rtol=1e-12)
        np.testing.assert_array_equal(ours.blocking_devices, theirs.blocking_devices)


def test_two_equal_devices_that_send_at_once_have_the_plan_of_one():
    alone = ap.PlanProblem(full_band_rate_bps=5e7, seconds_per_weight=1e-8, deadline_s=0.03)
    pair = ap.PlanProblem(full_band_rate_bps=[5e7, 5e7], seconds_per_weight=1e-8, deadline_s=0.03, mimo_group=[0, 0])
    ours, theirs = ap.plan(pair), ap.plan(alone)
    np.testing.assert_allclose(ours.pruning_ratio, theirs.pruning_ratio[0], rtol=1e-12)
    assert ours.bandwidth_share.tolist() == pytest.approx([1.0, 1.0])
    assert ours.shadow_price[0] == pytest.approx(2 * theirs.shadow_price[0])


def test_the_shadow_price_is_the_derivative_of_total_pruning_by_time():
    problem = paper_fleet(mimo_group=[0, 0, 1, 1, 1], deadline_s=0.02)
    step = 1e-6
    more = dataclasses.replace(problem, full_band_rate_bps=problem.full_band_rate_bps * (1 + step))
    saved = ap.plan(problem).pruning_ratio.sum() - ap.plan(more).pruning_ratio.sum()
    assert saved / step == pytest.approx(ap.plan(problem).shadow_price[0], rel=1e-4)  # of the order of the step


@pytest.mark.parametrize("scheme", ["optimal", "min-max"])
def test_the_smallest_deadline_has_a_plan_and_a_smaller_one_has_none(scheme):
    rng = np.random.default_rng(55)
    for _ in range(30):
        problem = grouped(rng, random_fleet(rng, num_devices=12, num_edges=1))
        smallest_s = ap.plan(problem, scheme).min_deadline_s[0]
        if smallest_s == 0.0:
            continue
        at, below = (dataclasses.replace(problem, deadline_s=smallest_s * factor) for factor in (1.0, 1.0 - 1e-9))
        assert ap.plan(at, scheme).status[0] == "ok" and ap.plan(below, scheme).status[0] != "ok"


@pytest.mark.parametrize("scheme", ["optimal", "min-max", "equal-resolved"])
def test_without_the_blocking_devices_an_edge_has_a_plan(scheme):
    rng = np.random.default_rng(56)
    for _ in range(30):
        problem = grouped(rng, random_fleet(rng, num_devices=20, num_edges=2))
        problem = dataclasses.replace(problem, deadline_s=problem.deadline_s * rng.uniform(0.1, 0.9))
        plan = ap.plan(problem, scheme)
        stays = ~plan.blocking_devices
        assert np.all(problem.groups.any(~stays) == plan.failed)
        if stays.any():
            assert not ap.plan(problem.subset(stays), scheme).failed.any()


def test_min_max_has_the_least_largest_ratio():
    rng = np.random.default_rng(57)
    for _ in range(20):
        problem = grouped(rng, random_fleet(rng, num_devices=15))
        largest = ap.plan(problem, "min-max").pruning_ratio.max()
        lower = np.clip(largest - 1e-6, problem.min_pruning_ratio, problem.max_pruning_ratio)
        if largest > problem.min_pruning_ratio.max() + 1e-6:
            assert times(problem, share_needed(problem, lower))[0] > 1.0


@pytest.mark.parametrize("scheme", sorted(set(ap.SCHEMES) - set(TAKES)))
def test_schemes_that_give_every_device_its_own_share_refuse_in_one_sentence(scheme):
    limits = DeviceLimits(cpu_hz_max=3e9, power_w_max=0.6, bandwidth_hz=20e6)
    with pytest.raises(InvalidValue, match=rf"radio\.num_streams must be 1 with scheme '{scheme}'"):
        ap.plan(paper_fleet(mimo_group=[0, 0, 1, 1, 1], limits=limits), scheme)


@pytest.mark.parametrize("group", [[0, 0], [[0, 0, 1, 1, 1]], [0.5, 0, 1, 1, 1]])
def test_groups_of_another_shape_or_kind_are_refused(group):
    with pytest.raises(InvalidValue, match=r"PlanProblem\.mimo_group must"):
        paper_fleet(mimo_group=group)
