"""A duration is told before long work, from what the runs will compute and how fast this machine computes it."""

import pytest

import airprune as ap
from airprune.cli import progress as cli
from airprune.cli.progress import announce_duration
from airprune.errors import UsageError
from airprune.runs.durations import Workload, about, expected_workload, workload_of

SMALL = {
    "data.name": "glyphs",
    "network": {"num_edges": 2, "devices_per_edge": 5},
    "data": {"train_samples": 1000, "test_samples": 100},
    "rounds": {"global_rounds": 3, "edge_rounds": 2},
    "train": {"local_epochs": 4, "batch_size": 10},
}
BOARD = {"clock": {"compute": "flops", "flops_per_cycle": 4.0}}


def test_a_workload_counts_every_pass_over_every_sample():
    scenario = ap.Scenario().with_values(SMALL)
    trained, tested = 3 * 2 * 4 * 1000, 3 * 100
    assert workload_of(scenario) == Workload(samples=trained + 0.3 * tested, device_rounds=3 * 2 * 10)
    untested = scenario.with_("rounds.evaluate_every", "never")
    assert workload_of(untested).samples == trained
    assert workload_of(untested.with_("train.local_steps", 3)).samples == 3 * 2 * 10 * 3 * 10


def test_edges_that_average_less_often_train_less():
    scenario = ap.Scenario().with_values({**SMALL, "rounds": {"global_rounds": 1, "edge_rounds": [1, 3]}})
    assert workload_of(scenario).device_rounds == 5 * 1 + 5 * 3


def test_a_run_that_stops_by_the_clock_has_the_rounds_that_fit():
    scenario = ap.Scenario().with_values({**SMALL, "plan.deadline_s": 0.5, "rounds.global_rounds": 1000})
    timed = scenario.with_("stop.time_s", 7.0)  # global rounds of 2 × 0.5 s
    assert workload_of(timed).device_rounds == 7 * 2 * 10
    assert workload_of(scenario).device_rounds == 1000 * 2 * 10


def test_devices_that_the_first_plan_leaves_out_are_not_counted():
    speeds_hz = [3e9, 3e9, 3e9, 3e9, 1e3]  # the last of each edge takes minutes
    scenario = ap.Scenario().with_values(
        {**SMALL, "network.cpu_kinds_hz": speeds_hz, "method": "drop-stragglers", **BOARD}
    )
    some = scenario.with_("plan.deadline_s", 30.0)
    takes_part = next(iter(ap.run(some)))["fate"].count("ok")
    assert 0 < takes_part < 10
    assert expected_workload(some).device_rounds == 3 * 2 * takes_part
    assert workload_of(some).device_rounds == 3 * 2 * 10


def test_planned_steps_and_parts_are_counted_by_what_they_cost():
    scenario = ap.Scenario().with_values({**SMALL, "method": "adaptive-work", **BOARD})
    short, long = (scenario.with_("plan.deadline_s", seconds) for seconds in (0.5, 50.0))
    assert expected_workload(short).samples < expected_workload(long).samples


def test_without_a_plan_the_upper_bound_is_taken():
    hopeless = ap.Scenario().with_values({**SMALL, "plan.deadline_s": 1e-9})
    assert expected_workload(hopeless) == workload_of(hopeless)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (24, "about 20 seconds"),
        (88, "about 90 seconds"),
        (120, "about 2 minutes"),
        (150, "about 2.5 minutes"),
        (420, "about 7 minutes"),
        (2 * 3600, "about 2 hours"),
        (30 * 3600, "about 30 hours"),
        (40 * 3600, "about 1.7 days"),
    ],
)
def test_a_duration_is_told_as_exactly_as_it_is_known(seconds, words):
    assert about(seconds) == words


@pytest.fixture
def a_thousand_a_second(monkeypatch):
    monkeypatch.setattr("airprune.runs.timing.seconds_per_sample", lambda scenario: 1e-3)
    monkeypatch.setattr("airprune.engines.machine.num_cores", lambda: 2)


@pytest.mark.usefixtures("a_thousand_a_second")
def test_one_line_tells_time_cores_and_runs(capsys):
    paper = ap.Scenario.preset("paper")  # 5,030,000 samples
    announce_duration([paper])
    assert capsys.readouterr().err == "This will take about 42 minutes on 2 cores.\n"
    announce_duration([paper.with_("engine.name", "serial")] * 4, at_a_time=2)
    assert capsys.readouterr().err == "This will take about 2.8 hours on 2 cores for 4 runs.\n"
    announce_duration([paper.with_("engine.name", "serial")] * 4, elsewhere=True)
    assert capsys.readouterr().err == "This will take about 6 hours of CPU time for 4 runs.\n"


@pytest.mark.usefixtures("a_thousand_a_second")
def test_short_work_is_not_announced(capsys):
    announce_duration([ap.Scenario.preset("smoke")])
    announce_duration([])
    assert capsys.readouterr().err == ""


def test_the_speed_of_this_machine_is_measured_on_the_scenarios_own_model(capsys, monkeypatch):
    monkeypatch.setattr(cli, "_LONG_S", 0.0)
    monkeypatch.setattr(cli, "_FEW_SAMPLES", 0)
    announce_duration([ap.Scenario().with_values(SMALL)])
    assert capsys.readouterr().err.startswith("This will take about ")


def test_an_unknown_dataset_is_refused_by_its_own_sentence():
    with pytest.raises(UsageError, match=r"Scenario\.data\.name 'cifar0' is unknown"):
        announce_duration([ap.Scenario().with_("data.name", "cifar0")])


def test_what_cannot_be_timed_is_run_without_a_guess(capsys, monkeypatch):
    monkeypatch.setattr("airprune.runs.timing.seconds_per_sample", lambda scenario: None)
    announce_duration([ap.Scenario.preset("paper")])
    assert capsys.readouterr().err == ""
