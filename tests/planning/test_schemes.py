"""Every scheme keeps the contract of a plan; each does what its name says."""

import dataclasses
import itertools

import numpy as np
import pytest

import airprune as ap
from airprune.planning import DeviceLimits, PlanProblem
from airprune.planning.schemes import SCHEMES, Allocation, Scheme, plan
from support.fleets import paper_fleet


@pytest.fixture(params=sorted(SCHEMES))
def scheme(request) -> str:
    return request.param


def two_edges(**changes) -> ap.PlanProblem:
    """With limits, for the schemes that need them."""
    limits = DeviceLimits(cpu_hz_max=3e9, power_w_max=0.63, bandwidth_hz=20e6, energy_j=0.02)
    return paper_fleet(edge=np.array([1, 0, 1, 0, 1]), limits=limits, **changes)


def test_every_scheme_returns_arrays_in_problem_order(scheme):
    plan = ap.plan(two_edges(), scheme)
    for array in (plan.bandwidth_share, plan.pruning_ratio, plan.latency_s):
        assert array.shape == (5,) and array.dtype == np.float64
    for array in (plan.status, plan.shadow_price, plan.min_deadline_s, plan.edge_latency_s):
        assert array.shape == (2,)
    assert plan.scheme == scheme


def test_every_scheme_spends_at_most_the_band_of_each_edge(scheme):
    plan = ap.plan(two_edges(), scheme)
    assert np.all(np.bincount(plan.problem.edge, plan.bandwidth_share) <= 1 + 1e-12)


def test_every_adapting_scheme_meets_the_deadline_or_says_that_it_cannot(scheme):
    for deadline in (0.001, 0.010, 0.024, 0.030, 0.080):
        plan = ap.plan(two_edges(deadline_s=deadline), scheme)
        late = np.array([np.any(plan.latency_s[plan.problem.edge == k] > deadline * (1 + 1e-12)) for k in (0, 1)])
        assert np.all(~late[plan.status == "ok"])
        if SCHEMES[scheme].adapts:
            assert not np.any(plan.status == "late")


def test_every_scheme_has_a_plan_at_its_own_smallest_deadline(scheme):
    if scheme == "closed-form":
        return  # knows no box, so no deadline puts it inside
    smallest = ap.plan(two_edges(), scheme).min_deadline_s
    at_smallest = ap.plan(two_edges(deadline_s=smallest[np.array([1, 0, 1, 0, 1])]), scheme)
    assert not at_smallest.failed.any()
    if SCHEMES[scheme].adapts:
        below = ap.plan(two_edges(deadline_s=(smallest * (1 - 1e-9))[np.array([1, 0, 1, 0, 1])]), scheme)
        assert below.failed.all()


def test_every_scheme_keeps_ratios_inside_the_box_or_says_that_it_left(scheme):
    plan = ap.plan(two_edges(min_pruning_ratio=0.05, max_pruning_ratio=0.9), scheme)
    if scheme == "no-pruning":
        assert np.all(plan.pruning_ratio == 0)
        return
    inside = (plan.pruning_ratio >= 0.05) & (plan.pruning_ratio <= 0.9)
    for k in (0, 1):
        assert inside[plan.problem.edge == k].all() or plan.status[k] == "outside-box"


class Half(Scheme):
    """The same ratio for everybody."""

    name = "half"
    summary = "half of everything"

    ratio: float = 0.5

    def allocate(self, problem: ap.PlanProblem) -> Allocation:
        ratio = np.full(problem.num_devices, self.ratio)
        return dataclasses.replace(SCHEMES["no-pruning"]().allocate(problem), ratio=ratio)


@pytest.fixture
def half_scheme():
    yield SCHEMES.add(Half)
    SCHEMES.remove("half")


def test_a_scheme_of_ones_own_is_planned_with_its_options(half_scheme):
    assert np.all(ap.plan(paper_fleet(), "half").pruning_ratio == 0.5)
    assert np.all(ap.plan(paper_fleet(), "half", {"ratio": 0.25}).pruning_ratio == 0.25)
    assert np.all(ap.plan(paper_fleet(), "half", Half(ratio=0.75)).pruning_ratio == 0.75)
    with pytest.raises(ap.UsageError, match=r"^Scenario\.plan\.half\.ratoi is unknown; did you mean 'ratio'"):
        ap.plan(paper_fleet(), "half", {"ratoi": 0.25})
    with pytest.raises(ap.UsageError, match=r"^Options of scheme 'half' must be a mapping, got 0\.25"):
        ap.plan(paper_fleet(), "half", 0.25)


def test_a_plan_knows_how_another_problem_is_planned_in_the_same_way(half_scheme):
    first = ap.plan(paper_fleet(), "half", {"ratio": 0.25})
    again = ap.plan(two_edges(), first.scheme, first.options)
    assert again.options == first.options == Half(ratio=0.25)
    assert np.all(again.pruning_ratio == 0.25)


def test_a_scheme_without_options_refuses_any():
    with pytest.raises(ap.UsageError, match=r"scheme 'optimal' takes no options, got {'ratio': 0.5}"):
        ap.plan(paper_fleet(), "optimal", {"ratio": 0.5})


def test_options_of_another_scheme_are_refused():
    with pytest.raises(ap.UsageError, match="scheme 'optimal' takes no options"):
        ap.plan(paper_fleet(), "optimal", SCHEMES["equal-reused"]())


def test_unknown_scheme_names_the_nearest():
    with pytest.raises(ap.UsageError, match="did you mean 'optimal'"):
        ap.plan(paper_fleet(), "optimum")


def test_equal_reused_takes_the_ratios_of_the_optimum():
    plan = ap.plan(two_edges(), "equal-reused")
    np.testing.assert_array_equal(plan.pruning_ratio, ap.plan(two_edges()).pruning_ratio)
    np.testing.assert_array_equal(plan.bandwidth_share, [1 / 3, 1 / 2, 1 / 3, 1 / 2, 1 / 3])
    assert ap.plan(paper_fleet(), "equal-reused").status[0] == "late"


def test_equal_resolved_ends_exactly_at_the_deadline():
    plan = ap.plan(paper_fleet(), "equal-resolved")
    assert np.all(plan.latency_s <= 0.030)
    np.testing.assert_allclose(plan.latency_s, 0.030, rtol=1e-14)


@pytest.mark.parametrize("reserves", [{}, {"fixed_bits": 25_168.0, "extra_seconds": 0.001}])
def test_no_pruning_takes_the_latency_of_the_whole_model(reserves):
    plan = ap.plan(paper_fleet(**reserves), "no-pruning")
    problem = plan.problem
    expected = 43_888 * (2 * 20 / 3e9 + 64 * 5 / problem.full_band_rate_bps)
    if reserves:
        expected = expected + 0.001 + 25_168 * 5 / problem.full_band_rate_bps
    np.testing.assert_allclose(plan.latency_s, expected, rtol=1e-14)
    assert plan.status[0] == "late"
    assert plan.min_deadline_s[0] == pytest.approx(expected.max(), rel=1e-14)


@pytest.mark.parametrize("reserves", [{}, {"fixed_bits": 25_168.0, "extra_seconds": 0.001}])
def test_min_max_prunes_alike_devices_alike_and_spends_the_band(reserves):
    plan = ap.plan(paper_fleet(**reserves), "min-max")
    assert np.ptp(plan.pruning_ratio) == 0.0
    assert plan.bandwidth_share.sum() == pytest.approx(1.0, rel=1e-13)  # bisection to the last bit
    wider = dataclasses.replace(plan.problem, full_band_rate_bps=plan.problem.full_band_rate_bps * (1 + 1e-6))
    fall = (plan.pruning_ratio[0] - ap.plan(wider, "min-max").pruning_ratio[0]) / 1e-6
    assert fall == pytest.approx(plan.shadow_price[0], rel=1e-4)  # finite difference


@pytest.mark.parametrize("scheme", ["no-pruning", "min-max-time"])
def test_who_ends_at_the_deadline_is_in_time_and_who_ends_after_it_is_late(scheme):
    taken_s = plan(paper_fleet(), scheme).latency_s.max()
    assert plan(paper_fleet(deadline_s=taken_s), scheme).status[0] == "ok"
    assert plan(paper_fleet(deadline_s=taken_s * (1 - 1e-11)), scheme).status[0] == "late"


def test_min_max_prunes_nothing_when_everything_fits():
    plan = ap.plan(paper_fleet(deadline_s=0.2), "min-max")
    assert np.all(plan.pruning_ratio == 0) and plan.shadow_price[0] == 0


def test_theorem_3_as_printed_hands_out_negative_bandwidth_in_the_papers_range():
    plan = ap.plan(paper_fleet(), "closed-form")
    np.testing.assert_allclose(plan.bandwidth_share, [0.67, 0.43, 0.20, -0.03, -0.27], atol=0.005)  # two digits given
    assert plan.bandwidth_share.sum() == pytest.approx(1.0, rel=1e-9)
    assert plan.status[0] == "outside-box"
    with pytest.raises(ap.Infeasible, match="leaves its bounds"):
        plan.raise_if_failed()


@pytest.mark.parametrize("reserves", [{}, {"fixed_bits": 20_000.0, "extra_seconds": 0.002}])
def test_theorem_3_as_printed_is_right_where_no_bound_binds(reserves):
    """And with fixed bits and extra seconds, which it does not know, its widened form is."""
    problem = ap.PlanProblem(
        full_band_rate_bps=np.array([4e7, 4.2e7, 4.1e7]),
        seconds_per_weight=6e-7,
        conv_weights=0,
        fc_weights=43_888,
        **reserves,
    )
    printed, exact = ap.plan(problem, "closed-form"), ap.plan(problem)
    assert printed.status[0] == "ok"
    np.testing.assert_allclose(printed.bandwidth_share, exact.bandwidth_share, rtol=1e-10)
    np.testing.assert_allclose(printed.pruning_ratio, exact.pruning_ratio, rtol=1e-10)
    assert printed.shadow_price[0] == pytest.approx(exact.shadow_price[0], rel=1e-12)


def test_theorem_3_as_printed_has_no_value_when_compute_is_free():
    assert ap.plan(paper_fleet(seconds_per_weight=0.0), "closed-form").status[0] == "outside-box"


def test_equal_shares_leave_out_the_fewest_devices_that_stand_in_their_way():
    """Against brute force over all subsets: those who stay share the band alike and meet the deadline."""
    rng = np.random.default_rng(3)
    some = 0
    for _ in range(20):
        count = int(rng.integers(2, 6))
        problem = PlanProblem(
            full_band_rate_bps=rng.uniform(60e6, 400e6, count),
            seconds_per_weight=40 / 3e9,
            deadline_s=0.015,
            max_pruning_ratio=0.9,
        )
        found = plan(problem, "equal-resolved")
        sizes = [
            len(staying)
            for size in range(1, count + 1)
            for staying in itertools.combinations(range(count), size)
            if not plan(problem.subset(np.array(staying)), "equal-resolved").failed.any()
        ]
        if not found.failed.any():
            assert not found.blocking_devices.any()
            continue
        staying = ~found.blocking_devices
        assert np.count_nonzero(staying) == max(sizes, default=0)
        if staying.any():
            some += 1
            assert not plan(problem.subset(staying), "equal-resolved").failed.any()
    assert some > 2
