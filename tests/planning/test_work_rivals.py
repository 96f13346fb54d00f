"""TimelyFL and CoCoFL: round lengths, epochs, last layers and blocks, against hand values and the authors' rule."""

import itertools

import numpy as np
import pytest

import airprune as ap
from airprune.errors import Infeasible, InvalidValue
from airprune.planning import WorkModel
from airprune.planning.schemes.cocofl import CoCoFL
from airprune.planning.schemes.timelyfl import TimelyFL
from airprune.wireless.device_speed.work import LayerWork, ModelWork


def layers_of(flops) -> ModelWork:
    """Layers in a chain, each with as many FLOPs forward as for either gradient."""
    layers = [
        LayerWork(
            name=str(n), prunable=True, forward=f, input_gradient=f * (n > 0), weight_gradient=f, number=n, fed_by=n - 1
        )
        for n, f in enumerate(flops)
    ]
    return ModelWork(layers=tuple(layers))


def three_devices(slowest_s: float = 3.0, deadline_s: float = 1.1) -> ap.PlanProblem:
    """One edge; over a third of the bandwidth a whole model takes 0.1 s, the upper part of half as many weights 0.05 s.

    Passes of 0.4, 1.0 and `slowest_s` seconds in five steps; the upper part costs 0.3 of that.
    """
    epoch_s = np.array([0.4, 1.0, slowest_s])
    return ap.PlanProblem(
        full_band_rate_bps=[30_000.0] * 3,
        seconds_per_weight=1e-9,
        edge=[0, 0, 0],
        deadline_s=deadline_s,
        bits_per_weight=1.0,
        conv_weights=500,
        fc_weights=500,
        work=WorkModel(
            first_trained=[0, 1],
            part_weights=[1000, 500],
            part_cost=[1.0, 0.3],
            part_value=[1.0, 0.5],
            epoch_s=epoch_s,
            step_s=epoch_s / 5,
            steps_per_epoch=5,
            most_steps=40,
            progress=np.arange(41.0),
        ),
    )


@pytest.mark.parametrize(("participation", "deadline_s"), [(0.3, 0.5), (0.5, 1.1), (1.0, 3.1)])
def test_a_round_of_timelyfl_lasts_as_long_as_the_kth_quickest_device_needs(participation, deadline_s):
    """0.5, 1.1 and 3.1 s in all: the first, second and third."""
    found = TimelyFL(participation=participation).best_deadline_s(three_devices())
    assert found == pytest.approx(deadline_s, rel=1e-8)  # a billionth longer, for rounding


def test_quick_devices_make_more_epochs_and_slow_ones_train_the_last_layers():
    """⌊(1.1 − 0.1) / 0.4⌋ = 2 epochs, 1, and one of the upper part: 0.3 · 3 + 0.05 = 0.95 s."""
    plan = TimelyFL().plan(three_devices())
    assert plan.local_steps.tolist() == [10, 5, 5] and plan.first_trained.tolist() == [0, 0, 1]
    assert plan.last_trained is None and plan.status.tolist() == ["ok"]
    np.testing.assert_allclose(plan.latency_s, [0.9, 1.1, 0.95], rtol=1e-12)
    assert plan.bandwidth_share.tolist() == [1 / 3] * 3


def test_a_device_too_slow_for_an_epoch_makes_the_steps_that_fit():
    """A step of the upper part takes 0.3 · 6 / 5 = 0.36 s; 1.05 s are left, so two."""
    plan = TimelyFL().plan(three_devices(slowest_s=6.0))
    assert (plan.local_steps[2], plan.first_trained[2]) == (2, 1)


def test_epochs_of_timelyfl_are_no_more_than_the_most():
    """Of 20.05 s, 49 epochs would fit; `most_steps` are 8 of them."""
    assert TimelyFL().plan(three_devices(deadline_s=20.05)).local_steps.tolist() == [40, 40, 30]


def test_blocks_of_cocofl_are_all_runs_of_neighbouring_layers():
    """Layers 1, 3 and 4 have no weights and belong to the block of the layer before."""
    first, last = CoCoFL().parts_of(np.array([0, 2, 5]))
    assert [*zip(first.tolist(), last.tolist(), strict=True)] == [(0, 5), (0, 4), (2, 5), (0, 1), (2, 4), (5, 5)]


def blocks_of(seed: int, num_devices: int, draw) -> ap.PlanProblem:
    """Four layers of random FLOPs and weights; a block costs no less than one inside it."""
    rng = np.random.default_rng(seed)
    first, last = CoCoFL().parts_of(np.arange(4))
    flops = layers_of(rng.uniform(1.0, 10.0, 4).tolist())
    weights = rng.uniform(100.0, 1000.0, 4)
    cost = [
        flops.step_flops(a, None if (a, b) == (0, 3) else b, frozen_forward=0.74) / flops.step_flops()
        for a, b in zip(first.tolist(), last.tolist(), strict=True)
    ]
    epoch_s = rng.uniform(0.1, 2.0, num_devices)
    return ap.PlanProblem(
        full_band_rate_bps=rng.uniform(1e4, 1e5, num_devices),
        seconds_per_weight=1e-9,
        edge=np.zeros(num_devices, dtype=int),
        deadline_s=1.0,
        bits_per_weight=8.0,
        conv_weights=int(weights[:2].sum()),
        fc_weights=int(weights[2:].sum()),
        work=WorkModel(
            first_trained=first,
            last_trained=last,
            part_weights=[weights[a : b + 1].sum() for a, b in zip(first, last, strict=True)],
            part_cost=cost,
            part_value=1.0,
            epoch_s=epoch_s,
            step_s=epoch_s / 5,
            steps_per_epoch=5,
            most_steps=10,
            progress=np.ones(11),
            draw=draw,
        ),
    )


@pytest.mark.parametrize("seed", range(20))
def test_every_block_of_the_authors_rule_is_chosen_equally_often(seed):
    """Their rule: of the blocks that fit, those that are no proper subset of another that fits; one at random."""
    num_draws, num_devices = 12, 3
    chosen: list[list[tuple[int, int]]] = [[] for _ in range(num_devices)]
    for number in range(num_draws):
        problem = blocks_of(seed, num_devices, np.full(num_devices, (number + 0.5) / num_draws))
        deadline_s = CoCoFL().best_deadline_s(problem)
        problem = blocks_of(seed, num_devices, problem.work.draw)
        problem = ap.PlanProblem(**{**problem.__dict__, "deadline_s": deadline_s})
        plan = CoCoFL().plan(problem)
        assert np.all(plan.latency_s <= deadline_s * (1 + 1e-9)) and plan.status.tolist() == ["ok"]
        for n in range(num_devices):
            chosen[n].append((int(plan.first_trained[n]), int(plan.last_trained[n])))
    work = problem.work
    for n in range(num_devices):
        fitting = []
        for part, (a, b) in enumerate(zip(work.first_trained, work.last_trained, strict=True)):
            seconds = 2.0 * work.epoch_s[n] * work.part_cost[part]
            seconds += 8.0 * work.part_weights[part] * num_devices / problem.full_band_rate_bps[n]
            if seconds <= deadline_s:
                fitting.append((set(range(a, b + 1)), (int(a), int(b))))
        largest = {block for layers, block in fitting if not any(layers < other for other, _ in fitting)}
        assert set(chosen[n]) == largest
        assert {chosen[n].count(block) for block in largest} == {num_draws // len(largest)}  # 12 has 1, 2, 3, 4


def test_the_deadline_of_cocofl_lets_a_third_train_the_whole_model_and_all_some_block():
    """Without uploads: three devices of 1, 2 and 4 s; the least block takes 0.4, so 1.6 s on the slowest."""
    work = WorkModel(
        first_trained=[0, 0, 1],
        last_trained=[1, 0, 1],
        part_weights=[2, 1, 1],
        part_cost=[1.0, 0.9, 0.4],
        part_value=1.0,
        epoch_s=[1.0, 2.0, 4.0],
        step_s=[1.0, 2.0, 4.0],
        steps_per_epoch=1,
        most_steps=1,
        progress=[0.0, 1.0],
    )
    problem = ap.PlanProblem(
        full_band_rate_bps=[1e12] * 3, seconds_per_weight=1e-9, edge=[0] * 3, deadline_s=1.0, work=work
    )
    assert CoCoFL().best_deadline_s(problem) == pytest.approx(1.6, rel=1e-6)
    assert CoCoFL(strong=0.5).best_deadline_s(problem) == pytest.approx(2.0, rel=1e-6)
    assert CoCoFL(strong=1.0).best_deadline_s(problem) == pytest.approx(4.0, rel=1e-6)


def test_a_block_costs_the_gradients_on_the_way_to_it_and_cheaper_forward_passes_of_the_others():
    """Layer 1 of three trained alone: 0.5 (10 + 30) + 20 forward, 20 of its weights, 30 through the layer above."""
    flops = layers_of((10.0, 20.0, 30.0))
    assert flops.step_flops(1, 1, frozen_forward=0.5) == 0.5 * 40.0 + 20.0 + 20.0 + 30.0
    assert flops.step_flops(0, 0) == 60.0 + 10.0 + 20.0 + 30.0
    assert flops.step_flops(0) == 60.0 + 60.0 + 50.0
    assert flops.step_flops(1) == flops.step_flops(1, 2) == 60.0 + 50.0 + 30.0


@pytest.mark.parametrize("scheme", ["timelyfl", "cocofl"])
def test_an_impossible_deadline_names_the_smallest_that_works(scheme):
    problem = blocks_of(3, 3, 0.0) if scheme == "cocofl" else three_devices()
    short = ap.PlanProblem(**{**problem.__dict__, "deadline_s": 0.01})
    plan = ap.plan(short, scheme)
    with pytest.raises(Infeasible):
        plan.raise_if_failed()
    assert plan.blocking_devices.any()
    enough = ap.PlanProblem(**{**problem.__dict__, "deadline_s": float(plan.min_deadline_s[0]) * (1 + 1e-9)})
    assert ap.plan(enough, scheme).status.tolist() == ["ok"]
    less = ap.PlanProblem(**{**problem.__dict__, "deadline_s": float(plan.min_deadline_s[0]) * 0.999})
    assert ap.plan(less, scheme).failed.all()


def test_blocks_that_end_before_they_begin_are_refused():
    with pytest.raises(InvalidValue, match=r"^WorkModel.last_trained must be"):
        WorkModel(
            first_trained=[0, 2], last_trained=[2, 1], part_weights=1, part_cost=1, part_value=1, epoch_s=1, step_s=1,
            steps_per_epoch=1, most_steps=1, progress=[0, 1],
        )  # fmt: skip


def test_relabelling_devices_relabels_the_plan():
    for scheme in (TimelyFL(), CoCoFL()):
        problem = blocks_of(5, 6, np.linspace(0.05, 0.95, 6)) if scheme.name == "cocofl" else three_devices()
        order = np.random.default_rng(0).permutation(problem.num_devices)
        plan, other = scheme.plan(problem), scheme.plan(problem.subset(order))
        for name in ("local_steps", "first_trained", "compute_s", "sent_weights"):
            np.testing.assert_array_equal(getattr(plan, name)[order], getattr(other, name))


def test_rivals_plan_problems_without_work_like_air_budget():
    plain = ap.PlanProblem(full_band_rate_bps=[3e8, 2e8], seconds_per_weight=1e-8, edge=[0, 0], deadline_s=0.03)
    expected = ap.plan(plain, "air-budget")
    for scheme, name in itertools.product(("timelyfl", "cocofl"), ("bandwidth_share", "pruning_ratio")):
        np.testing.assert_array_equal(getattr(ap.plan(plain, scheme), name), getattr(expected, name))
