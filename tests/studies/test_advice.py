"""`airprune advise`: curves, slowdowns, the rehearsed clock, forecasts, and the command."""

import csv
import dataclasses
import json
import math
import os
import signal

import numpy as np
import pytest
from scipy.optimize import curve_fit, isotonic_regression

import airprune as ap
from airprune.cli import main
from airprune.errors import InvalidValue, UsageError, WorkFailed
from airprune.planning.fleet import read_fleet, read_network
from airprune.rounds.experiment import Experiment
from airprune.studies.advice import LOSSLESS, advise, candidates, default_candidates, run_pilots, without_plan
from airprune.studies.advice.checking import first_with, outcome_of
from airprune.studies.advice.curves import crossing, fit_curve, rising
from airprune.studies.advice.forecast import Interval
from airprune.studies.advice.pilots import Pilot, Pilots, ends_s, reference_scenario, small_scenario
from airprune.studies.advice.rehearsal import rehearse
from airprune.studies.advice.sample_fleet import sample_fleet
from airprune.studies.advice.slowdown import lossless_rounds_at, pairs_at_equal_accuracy, rounds_after, slowdown
from airprune.wireless.channel import full_band_rates
from support.processes import PATIENCE_S, session_of, start_airprune, wait_for
from support.tiny import tiny_file

FLEET = "device,edge,snr_db\na,north,43\nb,north,40\nc,south,42\nd,south,39\n"


def law(t, floor, scale, power):
    return floor + scale * t**-power


# Learning curves


@pytest.mark.parametrize(("floor", "scale", "power"), [(0.09, 0.55, 0.8), (0.0, 0.6, 0.4), (0.2, 0.5, 1.2)])
def test_a_whole_curve_is_found_again_and_its_future_is_inside_the_interval(floor, scale, power):
    t = np.arange(1, 41)
    noise = np.random.default_rng(3).normal(scale=0.004, size=40)
    found = fit_curve(1 - law(t, floor, scale, power) + noise)
    for future in (20.0, 40.0, 80.0):
        low, median, high = Interval.of(found.accuracy_at(np.array(future)))
        truth = 1 - law(future, floor, scale, power)
        assert low - 0.003 <= truth <= high + 0.003  # an 80 % interval may miss by a little
        assert abs(median - truth) < 0.015


def test_the_fit_agrees_with_scipys_least_squares_on_much_data():
    t = np.arange(1, 101)
    error = law(t, 0.1, 0.5, 0.7) * np.exp(np.random.default_rng(0).normal(scale=0.01, size=100))
    (floor, scale, power), _ = curve_fit(law, t[1:], error[1:], p0=(0.05, 0.5, 0.5), sigma=error[1:])
    found = fit_curve(1 - error)
    theirs = np.interp(0.15, law(np.arange(300, 0, -1), floor, scale, power), np.arange(300, 0, -1))
    assert np.median(found.rounds_to(0.85)) == pytest.approx(theirs, rel=0.1)  # the grid's steps, and a prior


def test_a_short_pilot_knows_less_of_the_future_than_a_long_one():
    accuracy = 1 - law(np.arange(1, 41), 0.09, 0.55, 0.8)
    widths = []
    for rounds in (4, 10, 40):
        low, _, high = Interval.of(fit_curve(accuracy[:rounds]).accuracy_at(np.array(50.0)))
        widths.append(high - low)
        assert low - 0.003 <= 1 - law(50, 0.09, 0.55, 0.8) <= high + 0.003
    assert widths[0] > widths[1] > widths[2]


def test_rounds_to_is_the_inverse_of_accuracy_at_and_never_beyond_the_floor():
    found = fit_curve(1 - law(np.arange(1, 21), 0.1, 0.5, 0.8))
    rounds = found.rounds_to(0.8)
    assert found.accuracy_at(rounds) == pytest.approx(np.full(len(rounds), 0.8), rel=1e-9)  # closed form both ways
    assert np.isinf(found.rounds_to(0.999)).mean() > 0.5


@pytest.mark.parametrize("seed", range(5))
def test_the_rising_curve_is_isotonic_regression(seed):
    wild = np.random.default_rng(seed).normal(size=30) + np.linspace(0, 2, 30)
    assert rising(wild) == pytest.approx(isotonic_regression(wild).x, rel=1e-12, abs=1e-12)  # exact but for rounding


def test_a_crossing_lies_between_the_rounds_around_it_and_is_nan_outside():
    t, curve = np.arange(1, 5), np.array([0.2, 0.4, 0.4, 0.8])
    assert crossing(t, curve, 0.3) == pytest.approx(1.5)
    assert crossing(t, curve, 0.4) == 2.0
    assert crossing(t, curve, 0.6) == pytest.approx(3.5)
    assert math.isnan(crossing(t, curve, 0.1)) and math.isnan(crossing(t, curve, 0.9))


# Slowdowns


def curves_of(stretch, bend=0.0, rounds=40):
    """(lossless, method): at equal accuracy the method's round is stretch · t0^(1 + bend)."""
    t = np.arange(1, rounds + 1)
    return 1 - law(t, 0.1, 0.6, 0.7), 1 - law((t / stretch) ** (1 / (1 + bend)), 0.1, 0.6, 0.7)


@pytest.mark.parametrize("stretch", [0.7, 1.0, 1.5, 3.0])
def test_a_stretched_curve_has_its_stretch_as_slowdown(stretch):
    lossless, method = curves_of(stretch)
    found = slowdown([lossless, lossless], [method, method])
    assert found.ratio == pytest.approx(stretch, rel=0.06)  # straight lines between rounds, and a prior around 1
    assert np.allclose(pairs_at_equal_accuracy(lossless, lossless), np.column_stack([np.arange(1, 41)] * 2))


def test_a_method_that_falls_back_further_and_further_has_a_slope():
    lossless, method = curves_of(1.5, bend=0.5)
    found = slowdown([lossless] * 2, [method] * 2)
    assert found.law[1] == pytest.approx(0.5, abs=0.15)
    assert found.ratio == pytest.approx(1.5 * 10**0.5, rel=0.1)


def test_a_late_start_that_is_made_good_is_no_lasting_slowdown():
    t = np.arange(1, 41)
    late = 1 - law(np.maximum(t - 3.0, 0.5), 0.1, 0.6, 0.7)
    found = slowdown([1 - law(t, 0.1, 0.6, 0.7)] * 2, [late] * 2)
    assert found.law[2] > 0.3
    assert np.exp([1.0, np.log(30.0), 1 / 30] @ found.law) == pytest.approx(33 / 30, rel=0.1)


def test_laws_are_inverted():
    laws = slowdown([curves_of(2.0)[0]] * 2, [curves_of(2.0)[1]] * 2).drawn(
        np.random.default_rng(0).normal(size=(5, 3))
    )
    t0 = np.array([3.0, 5.0, 9.0, 20.0, 50.0])
    back = lossless_rounds_at(laws, rounds_after(laws, t0))
    assert np.diagonal(back) == pytest.approx(t0, rel=1e-3)  # by straight lines between points of a fine grid
    assert np.isinf(rounds_after(laws, np.full(5, np.inf))).all()


def test_a_method_that_never_gets_to_the_first_round_of_the_lossless_one_is_as_slow_as_its_pilot():
    pairs = pairs_at_equal_accuracy(np.array([0.5, 0.7]), np.array([0.1, 0.2, 0.3]))
    assert pairs.tolist() == [[1.0, 3.0]]


def test_seeds_that_disagree_make_the_slowdown_unsure():
    lossless, slow = curves_of(2.0)
    _, same = curves_of(1.0)
    agree, differ = slowdown([lossless] * 2, [slow] * 2), slowdown([lossless] * 2, [slow, same])
    assert differ.covariance[0, 0] > 2 * agree.covariance[0, 0]


# The clock without the learning


@pytest.mark.parametrize("method", [LOSSLESS, "adaptive-pruning", "frozen-pruning", "shared-pruning", "fp32"])
def test_a_rehearsal_takes_the_time_bits_and_joules_of_the_real_run(method, tmp_path, one_thread):
    base = ap.Scenario.load(tiny_file(tmp_path)).with_values({"engine.name": "serial", "radio.fading": "rayleigh"})
    scenario = candidates(base, [method])[-1].scenario
    *_, last = ap.run(scenario)
    cost = rehearse(Experiment.of(scenario), {})
    rounds = scenario.rounds.global_rounds * scenario.rounds.edge_rounds
    assert cost.seconds * rounds == pytest.approx(last["time_s"], rel=1e-12)  # the same sums in the same order
    assert cost.bits * rounds == pytest.approx(last["uploaded_bits"], rel=1e-12)
    assert cost.joules * rounds == pytest.approx(last["energy_j"], rel=1e-12)


def test_a_rehearsal_of_a_deadline_that_tunes_itself_takes_about_the_time_of_the_real_run(tmp_path, one_thread):
    base = ap.Scenario.load(tiny_file(tmp_path)).with_("engine.name", "serial")
    scenario = candidates(base, ["adaptive-bits"])[-1].scenario
    *_, last = ap.run(scenario)
    cost = rehearse(Experiment.of(scenario), {})
    assert cost.seconds * 4 == pytest.approx(last["time_s"], rel=0.3)  # codes lose what they did in the benchmark
    assert cost.bits_per_weight < 32 and cost.deadline_s < 0.01


# Fleets


def test_a_network_table_with_measured_snr_has_the_rates_that_plan_sees(tmp_path):
    table = tmp_path / "fleet.csv"
    table.write_text(FLEET)
    scenario = ap.Scenario().with_values({"network.table": str(table), "radio.bandwidth_hz": 5e6})
    rates = full_band_rates(scenario.build_network(), scenario.build_radio(), seed=0)
    assert rates == pytest.approx(read_fleet(table).problem(bandwidth_hz=5e6).full_band_rate_bps, rel=1e-12)


def test_distances_win_over_an_snr_beside_them(tmp_path):
    table = tmp_path / "fleet.csv"
    table.write_text("device,edge,snr_db,distance_m\na,0,40,100\n")
    network = read_network(table)
    assert network.link_snr is None and network.link_distance_m.tolist() == [100.0]


def test_measured_snrs_tell_nothing_of_other_stations(tmp_path):
    table = tmp_path / "fleet.csv"
    table.write_text(FLEET)
    with pytest.raises(InvalidValue, match=r"Network\.link_snr .* Give distance_m or places"):
        read_network(table).flat()
    scenario = ap.Scenario.preset("smoke").with_values({"network.table": str(table), "association.name": "nearest"})
    with pytest.raises(InvalidValue, match="association cannot change"):
        next(ap.run(scenario.with_("engine.name", "serial")))


# Pilots and forecasts


def test_the_lossless_method_comes_first_and_users_changes_win_over_a_methods():
    base = ap.Scenario()
    found = candidates(base, ["adaptive-bits"], ["plan.deadline_s=0.02"])
    assert [candidate.name for candidate in found] == [LOSSLESS, "adaptive-bits"]
    assert found[0].scenario.plan.scheme == "no-pruning"
    assert found[1].scenario.plan.deadline_s == 0.02 and found[1].scenario.compression.name == "ladder"
    assert base.with_overrides(found[1].words) == found[1].scenario


def test_a_small_pilot_has_the_steps_of_the_real_run_and_the_reference_its_samples():
    scenario = ap.Scenario.preset("smoke").with_values({"data.train_samples": 8_000, "train.batch_size": 64})
    experiment = Experiment.of(scenario)
    small = small_scenario(scenario, experiment, 7)
    assert (small.data.train_samples, small.train.batch_size, small.seed) == (2_000, 16, 7)
    assert 2_000 / 16 == 8_000 / 64
    big = scenario.with_("train.local_epochs", 5)
    reference, share = reference_scenario(big, Experiment.of(big))
    assert share == 0.5 and reference.selection.name == "random-share" and reference.data == big.data


def test_planned_work_is_tried_on_device_clocks_alone():
    base = ap.Scenario.preset("smoke")
    assert "adaptive-work" not in default_candidates(base)
    device = base.with_values({"clock.compute": "flops", "clock.flops_per_cycle": 8.0})
    assert default_candidates(device) == (*default_candidates(base), "adaptive-work")


@pytest.mark.parametrize(
    "clock",
    [
        {"clock.compute": "flops", "clock.flops_per_cycle": 8.0},
        {"clock.compute": "flops", "clock.board": "raspberry-pi-4", "network.cpu_hz": 1.8e9},
        {"clock.compute": "measured", "clock.seconds_per_sample": 1e-3, "clock.at_hz": 1e9},
    ],
    ids=["flops", "board", "measured"],
)
def test_a_small_pilot_computes_as_long_as_the_real_run(clock):
    scenario = ap.Scenario.preset("smoke").with_values({"data.train_samples": 8_000, "train.batch_size": 64, **clock})
    real = Experiment.of(scenario)
    small = Experiment.of(small_scenario(scenario, real, 0))
    device, whole = np.arange(real.network.num_devices), np.array(float(real.shape.num_weights))
    times = [one.compute.training_s(whole, device, one.network.cpu_hz) for one in (real, small)]
    assert times[1] == pytest.approx(times[0], rel=1e-12)  # a quarter of the samples at a quarter of the speed


def big_fleet(tmp_path, column="snr_db", low=30.0, high=45.0, edges=40, count=2_000):
    values = np.random.default_rng(0).uniform(low, high, count)
    rows = "".join(f"d{n},e{n % edges},{value!r}\n" for n, value in enumerate(values.tolist()))
    (tmp_path / "big.csv").write_text(f"device,edge,{column}\n{rows}")
    return ap.Scenario.preset("smoke").with_("network.table", str(tmp_path / "big.csv"))


@pytest.mark.parametrize(("column", "low", "high"), [("snr_db", 30.0, 45.0), ("rate_mbps", 150.0, 300.0)])
def test_devices_of_a_sample_are_pruned_as_in_the_whole_fleet(tmp_path, column, low, high):
    scenario = big_fleet(tmp_path, column, low, high).with_("plan.deadline_s", 0.5)
    sample = sample_fleet(scenario, most_devices=100)
    assert len(sample.kept) == 100 and sample.share == 0.5  # 4 of 40 edges, half of their 50 devices
    some = sample.scenario(scenario, tmp_path / "some.csv")
    means = []
    for one in (scenario, some):
        network, radio = one.build_network(), one.build_radio()
        problem = ap.PlanProblem(
            full_band_rate_bps=full_band_rates(network, radio, seed=0), seconds_per_weight=1e-8, edge=network.edge
        )
        smallest_s = ap.plan(problem, "min-max").min_deadline_s
        means.append(ap.plan(dataclasses.replace(problem, deadline_s=0.5), "min-max").pruning_ratio.mean())
        assert np.isfinite(smallest_s).all()
    assert means[1] == pytest.approx(means[0], abs=0.03)  # other devices of the same distribution


def test_whole_edges_of_a_sample_keep_their_devices_and_bandwidth(tmp_path):
    scenario = big_fleet(tmp_path)
    sample = sample_fleet(scenario, most_devices=250, whole_edges=True)
    some = sample.scenario(scenario, tmp_path / "some.csv")
    network = some.build_network()
    assert np.bincount(network.edge).tolist() == [50] * 5 and some.radio.bandwidth_hz == scenario.radio.bandwidth_hz
    assert sample_fleet(ap.Scenario(), most_devices=10) is None


def test_a_method_without_a_plan_is_named_with_the_deadline_that_works(tmp_path):
    base = ap.Scenario.load(tiny_file(tmp_path)).with_values({"engine.name": "serial", "plan.infeasible": "fail"})
    methods = candidates(base.with_("plan.deadline_s", 1e-6), ["variance", "adaptive-bits"])
    found = without_plan(methods, Experiment.of(methods[0].scenario))
    assert list(found) == ["variance"]  # the deadline of the other tunes itself
    longer = candidates(base.with_("plan.deadline_s", found["variance"]), ["variance"])
    assert without_plan(longer, Experiment.of(longer[0].scenario)) == {}


def test_pilots_of_one_round_recommend_nothing(tmp_path):
    base = ap.Scenario.load(tiny_file(tmp_path, global_rounds=20)).with_("engine.name", "serial")
    methods = candidates(base, ["fp32", "frozen-pruning"])
    experiment = Experiment.of(methods[0].scenario)
    lossless = curves_of(1.0)[0]
    short = advise(methods, experiment, made_up(lossless[:1], fp32=lossless[:1], **{"frozen-pruning": lossless[:1]}))
    assert short.best is None and "too short for a recommendation" in short.sentence
    one_short = made_up(lossless, fp32=lossless[:1], **{"frozen-pruning": lossless})
    partly = advise(methods, experiment, one_short, target=0.75)
    assert [forecast.sure == "unknown" for forecast in partly.forecasts] == [False, True, False]
    assert partly.best is not None and partly.best.method != "fp32"


def made_up(lossless, **methods):
    """Pilots with given curves."""
    small = {
        name: [Pilot(accuracy=tuple(curve), code_error={})] * 2
        for name, curve in {LOSSLESS: lossless, **methods}.items()
    }
    reference = Pilot(accuracy=tuple(lossless), code_error={})
    return Pilots(reference=reference, share=1.0, small=small, small_samples=100, seeds=(0, 1), seconds=1.0)


def test_advice_on_made_up_curves_is_rounds_times_seconds_and_takes_the_soonest(tmp_path):
    base = ap.Scenario.load(tiny_file(tmp_path, global_rounds=20)).with_("engine.name", "serial")
    methods = candidates(base, ["frozen-pruning", "fp32"])
    lossless, slow = curves_of(2.0)
    experiment = Experiment.of(methods[0].scenario)
    pilots = made_up(lossless, **{"frozen-pruning": slow, "fp32": lossless})
    advice = advise(methods, experiment, pilots, target=0.75)
    exact = (0.6 / 0.15) ** (1 / 0.7)  # rounds to an error of 0.25 = 0.1 + 0.6 t^-0.7
    none, frozen, fp32 = advice.forecasts
    assert none.rounds.median == pytest.approx(exact, rel=0.05)
    assert frozen.rounds.median == pytest.approx(2 * exact, rel=0.1)
    assert none.time_s.median == none.rounds.median * none.cost.seconds
    assert fp32.cost.bits == pytest.approx(none.cost.bits / 2, rel=0.01)
    assert advice.best is fp32 and "Take fp32: 75.0%" in advice.sentence
    far = advise(methods, experiment, pilots, target=0.899)
    assert {forecast.sure for forecast in far.forecasts} <= {"not reached", "beyond pilot"}
    assert far.sentence.startswith("No method is likely to reach 89.9% within 40 edge rounds")
    own = Experiment.of(methods[0].scenario.with_("rounds.target_accuracy", 0.7))
    assert advise(methods, own, pilots).target == 0.7
    chosen = advise(methods, experiment, pilots)
    assert chosen.target == pytest.approx(1 - law(40, 0.1, 0.6, 0.7) - 0.02, abs=0.005)


def test_a_reference_that_asks_few_devices_is_behind_the_real_run_and_less_sure(tmp_path):
    base = ap.Scenario.load(tiny_file(tmp_path, global_rounds=20)).with_("engine.name", "serial")
    methods = candidates(base, [LOSSLESS])
    experiment = Experiment.of(methods[0].scenario)
    whole = made_up(curves_of(1.0)[0])
    all_asked = advise(methods, experiment, whole, target=0.75).forecasts[0].rounds
    few_asked = advise(methods, experiment, dataclasses.replace(whole, share=0.2), target=0.75).forecasts[0].rounds
    assert few_asked.median < all_asked.median
    assert few_asked.high / few_asked.low > all_asked.high / all_asked.low


def test_pilots_without_a_round_are_an_error_with_a_way_out(tmp_path):
    base = ap.Scenario.load(tiny_file(tmp_path)).with_("engine.name", "serial")
    methods = candidates(base, [LOSSLESS])
    with pytest.raises(WorkFailed, match="larger --budget"):
        advise(methods, Experiment.of(methods[0].scenario), made_up([]))


def test_pilots_of_a_number_of_rounds_are_the_same_every_time(tmp_path, one_thread):
    base = ap.Scenario.load(tiny_file(tmp_path)).with_("engine.name", "serial")
    methods = candidates(base, ["adaptive-bits"])
    experiment = Experiment.of(methods[0].scenario)
    first, second = (run_pilots(methods, experiment, budget_s=1.0, rounds=3) for _ in range(2))
    assert (first.reference, first.small) == (second.reference, second.small)
    assert {len(pilot.accuracy) for found in first.small.values() for pilot in found} == {3}
    assert all(pilot.code_error for pilot in first.small["adaptive-bits"])


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8, 9, 64])
def test_pilots_end_within_the_budget_and_each_lane_has_them_one_after_the_other(workers):
    reference, *small = ends_s(100.0, workers, 4)
    assert reference == (50.0 if workers == 1 else 100.0)
    assert max(small) == pytest.approx(100.0) and len(small) == 8
    assert small == sorted(small) and min(small) > (50.0 if workers == 1 else 0.0)
    assert ends_s(math.inf, workers, 4) == [math.inf] * 9


def test_a_time_budget_ends_pilots_after_the_round_that_exceeds_it(tmp_path, one_thread):
    base = ap.Scenario.load(tiny_file(tmp_path, global_rounds=1_000)).with_("engine.name", "serial")
    methods = candidates(base, [LOSSLESS])
    told = []
    pilots = run_pilots(
        methods, Experiment.of(methods[0].scenario), budget_s=1.0, report=lambda *words: told.append(words)
    )
    assert 1 <= len(pilots.reference.accuracy) < 2_000
    assert [done for done, _, _ in told] == [0, 1, 2, 3] and told[0][2] == 1.0


def test_the_outcome_is_the_first_evaluation_as_good_as_the_target():
    edge = {"kind": "edge", "global_round": 1, "edge_id": [0, 1], "uploaded_bits": 10.0, "energy_j": 1.0}
    so_far = {"uploaded_bits": 20.0, "energy_j": 2.0}
    records = [
        {**edge, "edge_round": 1, "edge_latency_s": [1.0, 2.0], "test_accuracy": 0.3},
        {**edge, "edge_round": 2, "edge_latency_s": [2.5, None], "test_accuracy": 0.5},
        {"kind": "global", "global_round": 1, "time_s": 4.0, "test_accuracy": 0.5, **so_far},
        {**edge, "edge_round": 1, "edge_latency_s": [1.0, 1.5], "test_accuracy": 0.4},
    ]
    found = first_with(records, 0.5)
    assert (found.reached, found.edge_rounds, found.at.time_s, found.at.uploaded_bits) == (True, 2, 3.5, 20.0)
    never = first_with(records, 0.6)
    assert (never.reached, never.edge_rounds, never.at.test_accuracy) == (False, 3, 0.5)


@pytest.mark.slow
def test_a_forecast_from_half_of_the_rounds_holds_in_the_real_run(tmp_path, one_thread):
    base = ap.Scenario.preset("smoke").with_values(
        {"model.name": "mlp", "data.train_samples": 800, "rounds.global_rounds": 8, "engine.name": "serial"}
    )
    methods = candidates(base, ["adaptive-bits", "fp32"])
    experiment = Experiment.of(methods[0].scenario)
    advice = advise(methods, experiment, run_pilots(methods, experiment, budget_s=1.0, rounds=8))
    for method, forecast in zip(methods, advice.forecasts, strict=True):
        outcome = outcome_of(method.scenario, advice.target)
        assert outcome.reached or forecast.reached < 0.9
        if outcome.reached:
            assert 0.5 < forecast.time_s.median / outcome.at.time_s < 2.0


# The command


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.csv").write_text(FLEET)
    tiny_file(tmp_path)
    return "fleet.csv"


def test_the_command_tells_a_table_and_writes_json_csv_and_pictures(fleet, tmp_path, capsys, one_thread, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ["advise", fleet, "./tiny.toml", "--rounds", "2", "--methods", "adaptive-bits", "engine.name=serial"]
    assert main([*words, "--out", "told", "--check"]) == 0
    out, err = capsys.readouterr()
    assert "no-pruning" in out and "adaptive-bits" in out and "Clock: the paper's." in out and "Checked: " in out
    assert "pilots: 5 of 5 done" in err
    told = json.loads((tmp_path / "told" / "advice.json").read_text())
    assert [method["method"] for method in told["methods"]] == ["no-pruning", "adaptive-bits"]
    assert told["num_devices"] == 4 and told["edge_rounds"] == 4 and told["clock"] == "the paper's"
    for method in told["methods"]:
        assert set(method["time_s"]) == {"low", "median", "high"}
        assert 0.0 <= method["reached_probability"] <= 1.0
    assert told["check"]["method"] == told["recommended"]["method"]
    rows = list(csv.DictReader((tmp_path / "told" / "advice.csv").read_text().splitlines()))
    assert [row["method"] for row in rows] == ["no-pruning", "adaptive-bits"] and "time_s_median" in rows[0]
    assert (tmp_path / "told" / "advice.png").read_bytes().startswith(b"\x89PNG")
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("no-pruning", "adaptive-bits"))] == [
        "no-pruning",
        "adaptive-bits",
    ]  # 80 characters hold all columns: no part of the table comes below another
    assert (tmp_path / "told" / "advice.pdf").read_bytes().startswith(b"%PDF")

    assert main([*words, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["methods"] == told["methods"]  # the same rounds, the same answer
    command = again["recommended"]["command"].split()
    assert command[:3] == ["airprune", "run", "./tiny.toml"] and f"network.table={fleet}" in command


def test_ctrl_c_ends_the_pilots_and_leaves_nobody_behind(fleet):
    process = start_airprune("advise", fleet, "./tiny.toml", "--budget", "300", "rounds.global_rounds=100000")
    assert process.stderr.readline().startswith("pilots: 0 of 9 done, about 300 s left")
    wait_for(lambda: len(session_of(process.pid)) > 1, "workers should have started")
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and "Stopped before there was a recommendation." in err and "Traceback" not in err
    wait_for(lambda: not session_of(process.pid), "workers should have left")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere.csv"], "nowhere.csv"),
        (
            ["fleet.csv", "--methods", "adaptiv-bits"],
            "--methods 'adaptiv-bits' is unknown; did you mean 'adaptive-bits'?",
        ),
        (["fleet.csv", "--methods", "adaptive-bits,adaptive-bits"], "each once"),
        (["fleet.csv", "--target", "1.5"], "--target must be > 0 and ≤ 1"),
        (["fleet.csv", "--budget", "0"], "--budget must be > 0"),
        (["fleet.csv", "--rounds", "0"], "--rounds must be"),
        (["fleet.csv", "smoke", "demo"], "got 'demo' as well"),
        (["fleet.csv", "smok"], "smok"),
        (["fleet.csv", "smoke", "engine.name=dask"], "processes or serial, got dask"),
    ],
)
def test_wrong_words_end_in_one_sentence_and_exit_2(fleet, capsys, words, sentence):
    assert main(["advise", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and sentence in err and "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


def test_a_table_without_links_says_what_it_needs(tmp_path, capsys):
    table = tmp_path / "bare.csv"
    table.write_text("device,edge\na,0\n")
    assert main(["advise", str(table), "smoke"]) == 2
    assert "missing snr_db (dB over the full bandwidth), or in its place rate_mbps" in capsys.readouterr().err


def test_methods_must_be_named():
    with pytest.raises(UsageError, match="at least one method"):
        candidates(ap.Scenario(), [])
