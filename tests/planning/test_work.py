"""Work as a planned quantity: trained part, local steps, bits and share of every device together."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, linprog, milp

import airprune as ap
from airprune.errors import InvalidValue
from airprune.planning import Ladder, WorkModel
from airprune.planning.deadline import auto_work_deadline_s
from airprune.planning.edges import EdgeGroups
from airprune.planning.multiple_choice import ROUNDING, choose_options
from airprune.planning.schemes.work import Work
from airprune.planning.work import plan_work, work_options, worth

CAPACITY = 1.0 - ROUNDING


def small_work(num_devices: int, rng: np.random.Generator, *, most_steps: int = 4, parts: int = 3) -> WorkModel:
    whole_s = rng.uniform(0.02, 0.4, num_devices)
    steps = np.arange(most_steps + 1.0)
    return WorkModel(
        first_trained=np.arange(parts),
        part_weights=np.linspace(1.0, 0.3, parts) * 40_000,
        part_cost=np.linspace(1.0, 0.35, parts),
        part_value=1.0 - np.arange(parts) / parts,
        epoch_s=whole_s,
        step_s=whole_s * 0.6,
        steps_per_epoch=2,
        most_steps=most_steps,
        progress=steps / (steps + 2.0),
        part_saved=np.linspace(0.0, 0.3, parts),
    )


def small_fleet(seed: int, num_devices: int, *, levels: int = 2, most_steps: int = 4) -> ap.PlanProblem:
    rng = np.random.default_rng(seed)
    return ap.PlanProblem(
        full_band_rate_bps=rng.uniform(2e6, 4e7, num_devices),
        seconds_per_weight=1e-9,
        edge=np.zeros(num_devices, dtype=int),
        deadline_s=float(rng.uniform(0.3, 1.2)),
        bits_per_weight=2.0,
        fixed_bits=100.0,
        ladder=Ladder([2.0, 16.0][:levels], [0.3, 0.01][:levels]),
        work=small_work(num_devices, rng, most_steps=most_steps),
    )


def fleet_of_cpus(num_devices: int = 25, num_edges: int = 5, deadline_s: float = 0.5) -> ap.PlanProblem:
    """CPUs of 0.5 to 3 GHz at 8 FLOP per cycle, 22.7 MFLOP per sample, 200 samples in minibatches of 32."""
    rng = np.random.default_rng(1)
    epoch_s = 22.7e6 * 200 / (8.0 * rng.uniform(0.5e9, 3e9, num_devices))
    steps = np.arange(57.0)
    return ap.PlanProblem(
        full_band_rate_bps=rng.uniform(3e8, 6e8, num_devices),
        seconds_per_weight=1e-8,
        edge=np.arange(num_devices) % num_edges,
        deadline_s=deadline_s,
        work=WorkModel(
            first_trained=[0, 1, 2],
            part_weights=[43_888, 43_600, 25_168],
            part_cost=[1.0, 0.66, 0.34],
            part_value=[1.0, 0.75, 0.5],
            epoch_s=epoch_s,
            step_s=epoch_s * 32 / 200,
            steps_per_epoch=7,
            most_steps=56,
            progress=steps / (steps + 14.0),
        ),
    )


def by_hand(problem: ap.PlanProblem) -> float:
    """The best total value of one edge, by trying every combination of options."""
    work, ladder = problem.work, problem.ladder
    assert work is not None and ladder is not None
    options = []
    for n in range(problem.num_devices):
        own = []
        for part, steps, level in itertools.product(
            range(len(work.part_cost)), range(1, int(work.most_steps[n]) + 1), range(len(ladder.error))
        ):
            passes, rest = divmod(steps, int(work.steps_per_epoch[n]))
            whole_s = passes * work.epoch_s[n] + rest * work.step_s[n]
            seconds = whole_s * work.part_cost[part]
            if whole_s > work.epoch_s[n]:  # later passes start from kept features
                seconds -= (whole_s - work.epoch_s[n]) * work.part_saved[part]
            left_s = problem.deadline_s[n] - seconds
            bits = ladder.bits_per_weight[level] * work.part_weights[part] + problem.fixed_bits[n]
            if left_s > 0.0:
                share = bits / (problem.full_band_rate_bps[n] * left_s)
                own.append((share, work.part_value[part] * work.progress[steps] * (1.0 - ladder.error[level])))
        options.append(own)
    best = -np.inf
    for chosen in itertools.product(*options):
        if sum(share for share, _ in chosen) <= CAPACITY:
            best = max(best, sum(value for _, value in chosen))
    return best


def test_no_choice_beats_the_planner_on_200_random_fleets():
    compared = 0
    for seed in range(200):
        problem = small_fleet(seed, num_devices=1 + seed % 3, most_steps=3)
        best = by_hand(problem)
        planned = plan_work(problem, problem.work)
        if best == -np.inf:
            assert not planned.choice.fits[0]
            continue
        compared += 1
        assert planned.choice.total[0] == pytest.approx(best, abs=1e-9)  # sums of three values
        assert planned.choice.bound[0] == planned.choice.total[0]  # and it knows
    assert compared > 100


@pytest.mark.parametrize("seed", range(12))
def test_planner_agrees_with_a_mixed_integer_solver(seed):
    """Twelve devices: too many to try all combinations."""
    problem = small_fleet(seed, num_devices=12)
    options = work_options(problem, problem.work)
    possible = np.isfinite(options.share)
    num_options, num_devices = options.share.shape
    share = np.where(possible, options.share, 2.0).ravel()
    one_each = np.tile(np.eye(num_devices), num_options)
    constraints = [LinearConstraint(share[None], ub=CAPACITY), LinearConstraint(one_each, lb=1.0, ub=1.0)]
    solved = milp(
        -options.value.ravel(),
        integrality=np.ones(share.size),
        bounds=(0, possible.ravel().astype(float)),
        constraints=constraints,
        options={"mip_rel_gap": 0.0},
    )
    planned = plan_work(problem, problem.work)
    if not solved.success:
        assert not planned.choice.fits[0]
        return
    assert planned.choice.total[0] == pytest.approx(-solved.fun, rel=1e-6)  # the solver's own tolerance
    assert planned.choice.share.sum() <= 1.0


@pytest.mark.parametrize("seed", range(20))
def test_bound_and_price_are_those_of_the_linear_relaxation(seed):
    rng = np.random.default_rng(seed)
    share, value = rng.uniform(0.01, 0.5, (6, 5)), rng.uniform(0.0, 1.0, (6, 5))
    groups = EdgeGroups.of(np.zeros(5, dtype=int))
    one_each = np.tile(np.eye(5), 6)
    lp = linprog(
        -value.ravel(), A_ub=share.reshape(1, -1), b_ub=[CAPACITY], A_eq=one_each, b_eq=np.ones(5), bounds=(0, 1)
    )
    found = choose_options(groups, share, value, exact=False)
    if not lp.success:
        assert not found.fits[0]
        return
    assert found.bound[0] == pytest.approx(-lp.fun, rel=1e-7)
    assert found.price[0] == pytest.approx(-lp.ineqlin.marginals[0], rel=1e-6, abs=1e-9)
    assert found.total[0] <= found.bound[0] + 1e-12


def test_large_edges_lose_at_most_one_step():
    rng = np.random.default_rng(0)
    share = rng.uniform(0.0001, 0.02, (8, 400))
    value = np.sqrt(share) * rng.uniform(0.9, 1.1, share.shape)
    found = choose_options(EdgeGroups.of(np.zeros(400, dtype=int)), share, value)
    assert found.share.sum() <= CAPACITY
    assert found.bound[0] - found.total[0] <= value.max() - value.min()


def test_edges_do_not_see_each_other():
    problem = fleet_of_cpus()
    whole = ap.plan(problem, "work")
    for k in range(5):
        alone = ap.plan(problem.subset(problem.edge == k), "work")
        mine = problem.edge == k
        assert whole.value[k] == pytest.approx(alone.value[0], rel=1e-12)
        np.testing.assert_array_equal(whole.local_steps[mine], alone.local_steps)


def test_chunks_of_edges_are_planned_as_all_at_once(monkeypatch):
    problem = fleet_of_cpus(60, 12)
    together = plan_work(problem, problem.work)
    monkeypatch.setattr("airprune.planning.work._CHUNK_DEVICES", 12)
    for name in ("part", "steps", "level", "seconds"):
        np.testing.assert_array_equal(getattr(plan_work(problem, problem.work), name), getattr(together, name))


def test_one_option_is_the_plan_without_work_to_choose():
    """The whole model in the given steps at the given bits: shares of `air-budget`, and its latency."""
    problem = fleet_of_cpus(deadline_s=3.0)
    whole_s = np.linspace(0.5, 2.5, problem.num_devices)
    work = WorkModel(
        first_trained=0, part_weights=43_888, part_cost=1.0, part_value=1.0, epoch_s=whole_s, step_s=whole_s,
        steps_per_epoch=1, most_steps=1, progress=[0.0, 1.0],
    )  # fmt: skip
    given = dataclasses.replace(problem, seconds_per_weight=whole_s / 43_888, work=None)
    today, planned = ap.plan(given, "air-budget"), ap.plan(dataclasses.replace(problem, work=work), "work")
    np.testing.assert_allclose(planned.bandwidth_share, today.bandwidth_share, rtol=1e-9)  # a W is rounded once
    np.testing.assert_allclose(planned.latency_s, today.latency_s, rtol=1e-9)
    assert planned.local_steps.tolist() == [1] * 25 and planned.first_trained.tolist() == [0] * 25
    without = ap.plan(given, "work")
    assert without.local_steps is None and without.first_trained is None
    np.testing.assert_array_equal(without.bandwidth_share, today.bandwidth_share)


def test_hand_value_of_one_device():
    """Half a second, 0.1 s per whole step, 1 Mbit on 10 Mbit/s: four steps fit, and leave the upload exactly 0.1 s."""
    work = WorkModel(
        first_trained=0, part_weights=1000, part_cost=1.0, part_value=1.0, epoch_s=0.1, step_s=0.1,
        steps_per_epoch=1, most_steps=9, progress=np.arange(10) / 10,
    )  # fmt: skip
    problem = ap.PlanProblem(
        full_band_rate_bps=10e6 * (1 + 1e-9), seconds_per_weight=0.0, bits_per_weight=1000.0, deadline_s=0.5, work=work
    )
    plan = ap.plan(problem, "work")
    assert plan.local_steps.tolist() == [4] and plan.value.tolist() == [0.4]
    assert plan.latency_s[0] == pytest.approx(0.5, rel=1e-8)


def test_slow_devices_train_upper_layers_with_more_steps_and_fast_ones_the_whole_model():
    problem = fleet_of_cpus()
    plan = ap.plan(problem, "work", {"coverage": 0})
    by_speed = np.argsort(problem.work.epoch_s)
    assert plan.first_trained[by_speed[:3]].tolist() == [0, 0, 0]
    assert plan.first_trained[by_speed[-3:]].tolist() == [2, 2, 2]
    assert plan.latency_s.max() <= 0.5


def test_every_layer_is_trained_on_every_edge_however_slow_its_devices_are():
    problem = fleet_of_cpus()
    slow = dataclasses.replace(problem.work, epoch_s=problem.work.epoch_s * 4, step_s=problem.work.step_s * 4)
    problem = dataclasses.replace(problem, work=slow)
    free = ap.plan(problem, "work", {"coverage": 0})
    assert problem.groups.sum((free.first_trained == 0).astype(int)).min() == 0
    for coverage in (1, 2):
        plan = ap.plan(problem, "work", {"coverage": coverage})
        assert problem.groups.sum((plan.first_trained == 0).astype(int)).min() >= coverage
        assert plan.latency_s.max() <= 0.5
        assert plan.value.sum() <= free.value.sum()


def test_devices_take_turns_to_train_every_layer():
    problem = fleet_of_cpus(5, 1, deadline_s=0.4)
    equal = dataclasses.replace(problem.work, epoch_s=1.2, step_s=1.2 * 32 / 200)
    turns = []
    for round_index in range(5):
        work = dataclasses.replace(equal, round_index=round_index)
        plan = ap.plan(dataclasses.replace(problem, work=work), "work")
        (turn,) = np.flatnonzero(plan.first_trained == 0)
        turns.append(int(turn))
    assert sorted(turns) == [0, 1, 2, 3, 4]


def test_an_impossible_deadline_names_the_smallest_that_works():
    problem = dataclasses.replace(fleet_of_cpus(), deadline_s=0.01)
    plan = ap.plan(problem, "work")
    assert set(plan.status) == {"infeasible-compute"}
    least = plan.min_deadline_s.max()
    assert set(ap.plan(dataclasses.replace(problem, deadline_s=least), "work").status) == {"ok"}
    assert (
        "ok" not in ap.plan(dataclasses.replace(problem, deadline_s=plan.min_deadline_s.min() * 0.999), "work").status
    )


def test_more_bandwidth_buys_what_its_price_says():
    """The relaxation's value is piecewise linear in the bandwidth, with the price as its slope."""
    problem = dataclasses.replace(small_fleet(3, 8, most_steps=4), full_band_rate_bps=3e6)
    groups, options = problem.groups, work_options(problem, problem.work)
    base = choose_options(groups, options.share, options.value, exact=False)
    assert base.price[0] > 0.0
    more = 1.0 + 1e-9  # r b is what counts: a wider band is a smaller share for the same rate
    wider = choose_options(groups, options.share / more, options.value, exact=False)
    assert (wider.bound[0] - base.bound[0]) / 1e-9 == pytest.approx(base.price[0], rel=1e-4)
    assert worth(problem, problem.work, plan_work(problem, problem.work)).per_bandwidth[0] == base.price[0]


def test_a_longer_deadline_buys_what_the_envelope_theorem_says():
    """While no other number of steps fits, one more second saves b / (T − c) of the bandwidth at every device."""
    problem = dataclasses.replace(small_fleet(3, 8), full_band_rate_bps=3e6)
    step_s = 1e-9
    bounds = []
    for deadline_s in (problem.deadline_s[0], problem.deadline_s[0] + step_s):
        later = dataclasses.replace(problem, deadline_s=deadline_s)
        options = work_options(later, later.work)
        bounds.append(choose_options(later.groups, options.share, options.value, exact=False).bound[0])
    options = work_options(problem, problem.work)
    # The slope of the relaxation: λ Σ x b / (T − c) over its (one) fractional device too.
    lp = linprog(
        -options.value.ravel(),
        A_ub=np.where(np.isfinite(options.share), options.share, 9.0).reshape(1, -1),
        b_ub=[CAPACITY],
        A_eq=np.tile(np.eye(8), len(options.share)),
        b_eq=np.ones(8),
        bounds=[(0, 1 if ok else 0) for ok in np.isfinite(options.share).ravel()],
    )
    saved = (np.where(np.isfinite(options.share), options.share, 0.0) / (problem.deadline_s - options.seconds)).ravel()
    slope = -lp.ineqlin.marginals[0] * float(saved @ lp.x)
    assert (bounds[1] - bounds[0]) / step_s == pytest.approx(slope, rel=1e-3)
    planned = plan_work(problem, problem.work)
    own = worth(problem, problem.work, planned)
    price, share = planned.choice.price[0], planned.choice.share
    assert own.per_second[0] == pytest.approx(np.sum(price * share / (problem.deadline_s - planned.seconds)), rel=1e-12)


def test_worth_of_faster_cpus_and_more_time_bounds_what_planning_again_gains():
    """At a fixed price the gain is never below the relaxation's own: λ prices a relaxation from above."""
    problem = fleet_of_cpus(6, 1)
    planned = plan_work(problem, problem.work)
    before = plan_work(problem, problem.work, exact=False).choice.bound[0]
    found = worth(problem, problem.work, planned, more_seconds=0.2, faster=1.5)
    later = dataclasses.replace(problem, deadline_s=0.7)
    gained = plan_work(later, later.work).choice.total[0] - before
    assert 0.0 < gained <= found.of_deadline[0] + 1e-9
    for n in range(6):
        factor = np.where(np.arange(6) == n, 1.5, 1.0)
        quick = dataclasses.replace(
            problem.work, epoch_s=problem.work.epoch_s / factor, step_s=problem.work.step_s / factor
        )
        assert plan_work(problem, quick).choice.total[0] <= before + found.of_cpu[n] + 1e-9


def test_automatic_deadline_has_the_most_progress_per_second_of_a_fine_grid():
    problem, scheme = fleet_of_cpus(), Work()
    found_s = auto_work_deadline_s(problem, scheme.draft, coverage=1)

    def progress(deadline_s):
        plan = scheme.plan(dataclasses.replace(problem, deadline_s=deadline_s))
        covered = problem.groups.sum((plan.first_trained == 0).astype(int)).min() >= 1
        return plan.value.sum() / plan.latency_s.max() if covered and not plan.failed.any() else 0.0

    best = max(progress(deadline_s) for deadline_s in np.geomspace(0.05, 4.0, 120))
    assert progress(found_s) >= 0.93 * best  # the search tries 32 deadlines; steps are whole


def test_time_beside_the_round_makes_rounds_longer():
    problem, scheme = fleet_of_cpus(), Work()
    alone_s = auto_work_deadline_s(problem, scheme.draft, coverage=1)
    assert auto_work_deadline_s(problem, scheme.draft, coverage=1, beside_s=1.0) > alone_s


@pytest.mark.parametrize("bandwidth", [1.0, 2.0, 5.0, 20.0])
def test_few_numbers_of_steps_are_worth_almost_as_much_as_all(bandwidth):
    """From an edge whose smallest options hardly fit to one with room for all: two uploads' worth of steps suffice."""
    problem = fleet_of_cpus(1000, 10)
    problem = dataclasses.replace(problem, full_band_rate_bps=problem.full_band_rate_bps * bandwidth)
    every, few = (plan_work(problem, problem.work, every_step=every) for every in (True, False))
    assert few.choice.fits.all() and np.all(few.choice.total >= 0.97 * every.choice.total)


def test_many_devices_are_planned_close_to_the_bound():
    problem = fleet_of_cpus(20_000, 200)
    problem = dataclasses.replace(problem, full_band_rate_bps=problem.full_band_rate_bps * 20)
    plan = ap.plan(problem, "work")
    assert set(plan.status) == {"ok"} and plan.latency_s.max() <= 0.5 * (1 + 1e-9)
    assert np.max(plan.value_bound / plan.value - 1.0) < 0.01
    assert problem.groups.sum(plan.bandwidth_share).max() <= 1.0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"first_trained": [1, 2, 3]}, "first_trained"),
        ({"part_cost": [0.3, 0.6, 1.0]}, "part_cost"),
        ({"most_steps": 0}, "most_steps"),
        ({"progress": [0.0, 0.1]}, "progress"),
        ({"epoch_s": -1.0}, "epoch_s"),
    ],
)
def test_impossible_work_is_refused_by_name(change, field):
    with pytest.raises(InvalidValue, match=f"WorkModel.{field}"):
        dataclasses.replace(fleet_of_cpus().work, **change)


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.19, 0.21, 0.33, 0.41, 100.0])
def test_steps_within_a_time_are_the_most_that_fit(seconds, part):
    work = WorkModel(
        first_trained=[0, 1], part_weights=1, part_cost=[1.0, 0.5], part_saved=[0.0, 0.3], part_value=1,
        epoch_s=0.2, step_s=0.12, steps_per_epoch=2, most_steps=10, progress=np.zeros(11), extra_s=0.01,
    )  # fmt: skip
    steps = int(work.steps_within(np.array([seconds]), part)[0])
    fits = [tau for tau in range(1, 11) if work.seconds(np.array([tau]), part)[0] <= seconds]
    assert steps == max(fits, default=0)


def test_kept_features_save_from_the_second_pass_on():
    """One pass of the part costs 0.5 s of the whole model's second; a second one 0.2 s, since 0.3 s are known."""
    work = WorkModel(
        first_trained=[0, 1], part_weights=1, part_cost=[1.0, 0.5], part_saved=[0.0, 0.3], part_value=1,
        epoch_s=1.0, step_s=0.6, steps_per_epoch=2, most_steps=9, progress=np.zeros(10),
    )  # fmt: skip
    assert work.seconds(np.array([1, 2, 3, 4]), 1) == pytest.approx([0.3, 0.5, 0.62, 0.7], rel=1e-12)
    assert work.seconds(np.array([1, 2, 3, 4]), 0) == pytest.approx([0.6, 1.0, 1.6, 2.0], rel=1e-12)
