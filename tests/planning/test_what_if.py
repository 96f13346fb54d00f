"""What more bandwidth, time and speed would buy: outcomes in numbers, and the split of compute times."""

import numpy as np
import pytest

import airprune as ap
from airprune.planning.schemes.optimal import Optimal
from airprune.planning.schemes.work import Work
from airprune.planning.what_if import AS_GIVEN, Change, outlook, usual_changes, what_if
from airprune.planning.work_model import WorkModel


def fleet(deadline_s=0.030, **changes):
    rng = np.random.default_rng(5)
    values = {
        "full_band_rate_bps": rng.uniform(1.5e8, 3e8, 20),
        "seconds_per_weight": rng.uniform(5e-9, 5e-8, 20),
        "edge": np.repeat(np.arange(4), 5),
        "deadline_s": deadline_s,
        "max_pruning_ratio": 0.95,
    }
    return ap.PlanProblem(**{**values, **changes})


def test_an_outlook_counts_the_devices_that_are_left_when_blockers_leave():
    problem = fleet(0.016)
    found = outlook(problem, Optimal())
    plan = ap.plan(problem)
    blocked = np.count_nonzero(plan.blocking_devices)
    assert blocked > 0 and found.served == 20 - blocked
    assert found.full_edges == np.count_nonzero(~plan.failed)
    kept = ap.plan(problem.subset(~plan.blocking_devices))
    assert found.mean_pruning == pytest.approx(kept.pruning_ratio.mean(), rel=1e-12)  # the same plan
    assert found.max_pruning == kept.pruning_ratio.max()


def test_the_smallest_deadline_serves_all_and_a_shorter_one_does_not():
    smallest_s = outlook(fleet(0.016), Optimal()).smallest_deadline_s
    assert outlook(fleet(smallest_s), Optimal()).served == 20
    assert outlook(fleet(smallest_s * 0.999), Optimal()).served < 20


def test_a_change_is_the_same_as_a_problem_with_those_numbers():
    problem = fleet()
    change = Change(words="", more_hz=5e6, more_s=0.002, more_cpu_hz=1e9)
    changed = change.of(problem, bandwidth_hz=20e6, cpu_hz=2e9)
    assert changed.full_band_rate_bps == pytest.approx(problem.full_band_rate_bps * 25 / 20, rel=1e-12)
    assert changed.seconds_per_weight == pytest.approx(problem.seconds_per_weight * 2 / 3, rel=1e-12)
    assert changed.deadline_s == pytest.approx(np.full(20, 0.032), rel=1e-12)
    lines = what_if(problem, Optimal(), [AS_GIVEN, change], bandwidth_hz=20e6, cpu_hz=2e9)
    assert lines[1][1].mean_pruning == ap.plan(changed).pruning_ratio.mean() < lines[0][1].mean_pruning


def test_more_of_anything_never_prunes_more_on_average():
    problem = fleet(outlook(fleet(), Optimal()).smallest_deadline_s * 1.2)
    given, *others = (
        found for _, found in what_if(problem, Optimal(), usual_changes(problem), bandwidth_hz=20e6, cpu_hz=3e9)
    )
    assert given.served == 20
    assert all(found.mean_pruning <= given.mean_pruning for found in others)


def test_a_baseline_that_is_late_serves_only_those_in_time():
    problem = fleet(0.030)
    found = outlook(problem, ap.SCHEMES["no-pruning"]())
    in_time = ap.plan(problem, "no-pruning").latency_s <= 0.030
    assert found.served == np.count_nonzero(in_time) < 20


# Work


def work_model():
    """Three layers of 100, 200 and 10 FLOP forward, as many for each gradient; 4 steps a pass, the last of them half.

    κ and φ are summed by hand: whole 930 − 100 (no gradient of the data) = 830.
    """
    whole = 3 * 310 - 100
    return WorkModel(
        first_trained=[0, 1, 2],
        part_weights=[310, 210, 10],
        part_cost=[1.0, (310 + 200 + 2 * 10) / whole, (310 + 10) / whole],
        part_saved=[0.0, 100 / whole, 300 / whole],
        part_value=[1.0, 2 / 3, 1 / 3],
        epoch_s=3.5,
        step_s=1.0,
        steps_per_epoch=4,
        most_steps=12,
        progress=np.arange(13) / (np.arange(13) + 4),
    )


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("steps", [1, 4, 6, 12])
def test_forward_passes_take_the_time_of_their_flops(part, steps):
    """Minibatch by minibatch: forward of all layers in the first pass, later only of those above the frozen ones."""
    sample_s = 1.0 / (3 * 310 - 100)
    frozen = [0, 100, 300][part]
    expected = 0.0
    for step in range(steps):
        is_first_pass = step < 4
        size = 0.5 if step % 4 == 3 else 1.0
        expected += size * sample_s * (310 - (0 if is_first_pass else frozen))
    found = work_model().forward_s(np.array([steps]), part, 310 / (3 * 310 - 100))
    assert found[0] == pytest.approx(expected, rel=1e-12)  # sums in another order
    assert found[0] < work_model().seconds(np.array([steps]), part)[0]


def test_faster_cpus_do_the_same_work_in_less_time_and_buy_progress():
    problem = ap.PlanProblem(
        full_band_rate_bps=[1e6, 2e6], seconds_per_weight=0.0, bits_per_weight=32.0, deadline_s=5.0, work=work_model()
    )
    steps = np.array([5, 5])
    assert work_model().faster(2.0).seconds(steps, 1) == pytest.approx(work_model().seconds(steps, 1) / 2, rel=1e-12)
    (_, given), (_, quick) = what_if(
        problem, Work(), [AS_GIVEN, Change(words="", times_cpu=2.0)], bandwidth_hz=1e6, cpu_hz=1e9
    )
    assert quick.progress > given.progress and given.served == 2
    assert given.progress_per_s == pytest.approx(given.progress / given.round_s)
