"""The study of radios: what its shortcuts rest on, its deadlines, and its verdicts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.planning.exclusion import without_blockers
from airprune.runs import run
from airprune.studies.claims import Verdict
from airprune.studies.league.ledger import read_ledger
from airprune.studies.paper.table2 import SCHEMES, table2
from airprune.studies.radio import study as study_module
from airprune.studies.radio.findings import FINDINGS, by_method, judged, target_of, time_to_target_s
from airprune.studies.radio.page import markdown, survival_figure
from airprune.studies.radio.plan_claims import _growth_with_share, _with_clock, judged_plans, planned
from airprune.studies.radio.pressure import mean_ratio, planned_ratios, pressed_deadline_s, round_problems
from airprune.studies.radio.promises import PROMISES, ROBUST, promise_name
from airprune.studies.radio.rungs import (
    CORRELATION_OF_DB,
    DROPPING,
    FAIR,
    LEARNS_PLANS,
    PAPERS,
    RUNGS,
    TUNED,
    WHOLE,
    scenario_on,
)
from airprune.studies.radio.study import Arm, ArmResult, RadioStudy, read_planned, read_results
from airprune.studies.radio.timetable import timetable, timetable_of
from airprune.studies.radio.training_claims import JUDGED, VARIANTS, judged_trainings
from airprune.units import db_to_ratio
from airprune.wireless.channel import Radio, full_band_rate_bps, path_loss_db, snr

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def ledger():
    return read_ledger(DOCS / "league-played.jsonl")


@pytest.mark.parametrize("method", TUNED)
def test_the_papers_rung_is_the_leagues_first_track_to_the_hash(ledger, method):
    for seed in range(5):
        name = scenario_on({}, method, seed).hash[:16]
        (line,) = (one for one in ledger.lines if one.run == name and one.track == "A")  # claims may share the run
        assert (line.method, dict(line.tuned)) == (method, dict(TUNED[method]))


@pytest.mark.parametrize("method", [PAPERS, FAIR, WHOLE, "fixed-8", "stc"])
def test_a_timetable_has_the_times_of_the_trained_run_to_the_bit(ledger, method):
    scenario = scenario_on({}, method, 1)
    recorded = ledger[scenario.hash[:16]].played
    found = timetable(scenario)
    assert list(found.time_s) == [test.time_s for test in recorded.tests]
    assert found.mean_ratio == pytest.approx(recorded.conduct.mean_ratio, rel=1e-12)  # sums in another order


def test_the_plans_of_a_method_that_learns_them_have_no_timetable(ledger):
    (method,) = LEARNS_PLANS
    recorded = ledger[scenario_on({}, method, 1).hash[:16]].played
    assert timetable(scenario_on({}, method, 1)).time_s[-1] != recorded.tests[-1].time_s


def few(settings, method, seed=0, **changes):
    """A scenario of the study that takes a second to train."""
    small = {"data.train_samples": 250, "data.test_samples": 100, "rounds.global_rounds": 1, **changes}
    return scenario_on(settings, method, seed).with_values(small)


def trained(scenario):
    """(plans and outcomes, accuracy) of a run."""
    records = [dict(record) for record in run(scenario)]
    return timetable_of(records).learning, [r["test_accuracy"] for r in records if r["kind"] == "global"]


def test_runs_with_the_same_orders_learn_the_same_on_another_radio():
    """Without pruning or lost devices, thermal noise changes times and nothing else."""
    before, after = (trained(few(settings, WHOLE)) for settings in ({}, RUNGS["thermal"].settings))
    assert before == after
    slow, fast = (timetable(few(settings, WHOLE)).time_s for settings in (RUNGS["thermal"].settings, {}))
    assert slow[-1] > 1.3 * fast[-1]


def test_runs_with_other_orders_are_told_apart():
    tight, loose = (timetable(few({}, FAIR, **{"plan.deadline_s": d})) for d in (0.03, 0.04))
    assert tight.learning != loose.learning
    late = timetable(few(RUNGS["csi"].settings, FAIR, **{"plan.deadline_s": 0.07}))
    assert late.on_time_share < 1.0


def test_the_deadline_of_a_rung_prunes_as_much_as_the_papers():
    ratio = mean_ratio({}, [0])(0.03)
    deadline_s = pressed_deadline_s(RUNGS["mcs"].settings, [0], ratio)
    assert mean_ratio(RUNGS["mcs"].settings, [0])(deadline_s) == pytest.approx(
        ratio, abs=0.003
    )  # 0.1 % of the deadline
    assert deadline_s > 0.03


def test_devices_that_block_their_edge_count_as_pruned_whole():
    scheme, problems = round_problems(few({}, PAPERS))
    assert (planned_ratios(scheme, problems[0], 1e-6) == 1.0).all()
    assert (planned_ratios(scheme, problems[0], 10.0) == 0.0).all()


def test_csi_errors_are_as_many_db_as_they_are_called():
    rng = np.random.default_rng(0)
    parts, error = rng.standard_normal((2, 200_000, 2))
    for error_db, c in CORRELATION_OF_DB.items():
        estimate = c * parts + math.sqrt(1 - c**2) * error
        gain = 0.5 * np.sum(parts**2, axis=1)
        planned = 0.5 * np.sum((c * estimate) ** 2, axis=1) + 1 - c**2
        rms_db = np.sqrt(np.mean((10 * np.log10(gain / planned)) ** 2))
        assert rms_db == pytest.approx(error_db, abs=0.05)  # rounded correlations


def test_errors_of_3_db_are_the_rungs_of_imperfect_csi():
    assert dict(PROMISES[promise_name(3, ROBUST)].settings) == dict(RUNGS["promise"].settings)


def result(rung, method, seed, end, seconds):
    return ArmResult(
        rung=rung,
        method=method,
        seed=seed,
        deadline_s=0.03,
        learned="x",
        accuracy=(0.1, end),
        time_s=(seconds / 2, seconds),
        mean_ratio=0.5,
        max_ratio=0.5,
        blocked_share=0.0,
        on_time_share=1.0,
    )


@pytest.fixture
def results():
    ends = {PAPERS: 0.70, FAIR: 0.80, WHOLE: 0.80, "fp32": 0.80, "fixed-8": 0.80}
    seconds = {PAPERS: 0.5, FAIR: 0.5, WHOLE: 0.8, "fp32": 0.4, "fixed-8": 0.2}
    return [
        result(rung, method, seed, ends[method] + 0.001 * seed, seconds[method] * (1 if rung == "paper" else 2))
        for rung in ("paper", "mcs")
        for method in ends
        for seed in range(3)
    ]


def test_the_target_is_95_percent_of_no_pruning_on_the_papers_radio(results):
    assert target_of(results) == pytest.approx(0.95 * 0.801)


def test_a_target_that_is_never_reached_takes_for_ever(results):
    assert time_to_target_s(results[0], 0.95) == math.inf
    assert time_to_target_s(results[3], 0.7) == 0.5


def test_findings_are_judged_from_the_seeds_that_both_methods_have(results):
    verdicts = {(one["rung"], one["claim"]): one for one in judged(results, ["paper", "mcs"])}
    assert len(verdicts) == 2 * len(FINDINGS)
    assert verdicts["paper", "paper-accuracy"]["verdict"] == Verdict.FAILS
    assert verdicts["paper", "fair-accuracy"]["verdict"] == Verdict.HOLDS
    assert verdicts["mcs", "pruning-sooner"]["effect"] == pytest.approx(1 - 0.5 / 0.8)
    assert verdicts["mcs", "four-sooner"]["verdict"] == Verdict.UNDECIDED  # nothing was run
    kept = [one for one in results if not (one.method == WHOLE and one.seed == 2 and one.rung == "mcs")]
    again = {(one["rung"], one["claim"]): one for one in judged(kept, ["mcs"])}
    assert again["mcs", "fair-accuracy"]["seeds"] == 2


def test_tables_and_figure_show_every_rung_that_was_run(results, tmp_path):
    text = markdown(results, {"mcs": read_planned(DOCS / "radio-study.json")["mcs"]})
    assert RUNGS["mcs"].title in text and RUNGS["urban"].title not in text
    figure = survival_figure(results, caption="three seeds")
    shown = {label.get_text() for axes in figure.axes for label in axes.get_xticklabels()}
    assert shown == {RUNGS["paper"].title, RUNGS["mcs"].title}


@pytest.fixture
def small_study(tmp_path, monkeypatch):
    """A study of two rungs and two methods that trains in seconds."""

    def small(settings, method, seed, deadline_s=None):
        pressed = {} if deadline_s is None else {"plan.deadline_s": deadline_s}
        return few(settings, method, seed, **pressed)

    monkeypatch.setattr(study_module, "scenario_on", small)
    monkeypatch.setattr(study_module, "RUNGS", {name: RUNGS[name] for name in ("paper", "thermal")})
    monkeypatch.setattr(study_module, "_IN_TURN", (("paper", "thermal"),))
    monkeypatch.setattr(study_module, "PROMISES", {})
    return RadioStudy(out=tmp_path, seeds=(0,), methods=(FAIR, WHOLE))


def test_a_study_trains_once_what_learns_the_same_and_resumes(small_study, tmp_path):
    small_study.plans["deadlines"] |= {"paper": 0.03, "thermal": 0.048}
    trainings = [run.label for run in small_study.missing()]
    assert trainings == [
        "radio paper minmax-pruning, seed 0",
        "radio thermal minmax-pruning, seed 0",
        "radio paper hierfavg, seed 0",  # and not on thermal noise again
    ]
    for one in list(small_study.missing()):
        list(small_study.store.campaign_of([one]).outcomes([one]))
    found = small_study.write()
    again = replace(small_study)
    again.plans["deadlines"] |= small_study.plans["deadlines"]
    assert list(again.missing()) == []
    whole = {one.rung: one for one in found if one.method == WHOLE}
    assert whole["paper"].accuracy == whole["thermal"].accuracy and whole["paper"].learned == whole["thermal"].learned
    assert whole["thermal"].time_s > whole["paper"].time_s
    assert len(read_ledger(tmp_path / "played.jsonl")) == 3
    assert len(json.loads((tmp_path / "radio.json").read_text())["results"]) == 4
    assert set(by_method(found, "paper")) == {FAIR, WHOLE}


def test_arms_of_all_rungs_and_methods_are_there_once():
    arms = list(RadioStudy(out=Path("x"), seeds=(0, 1)).arms())
    assert len({(a.rung.name, a.method, a.seed) for a in arms}) == len(arms)
    assert {(a.rung.name, a.method) for a in arms} >= {(r, m) for r in RUNGS for m in TUNED}
    assert Arm(rung=RUNGS["urban"], method="stc", seed=1) in arms


def test_planned_rounds_of_the_papers_radio_are_those_of_table_2():
    """Table II plans other placements of the same network, with other seeds."""
    found = planned(RUNGS["paper"], 0.03, seeds=(0, 1))
    cells = {(cell.topology, cell.scheme): cell.mean_ms / 1e3 for cell in table2(range(40))}
    for scheme in SCHEMES:
        assert found.round_s[scheme] == pytest.approx(cells["HFL", scheme], rel=0.05)
    assert found.flat_s == pytest.approx(cells["non-HFL", "no-pruning"], rel=0.05)
    assert found.flat_endless == 0.0
    assert found.ratio["30 / 30"] == pytest.approx(mean_ratio({}, (0, 1))(0.03), rel=1e-12)  # the same plans
    assert {one["claim"]: one["verdict"] for one in judged_plans({"paper": found})} == {
        "longer-deadline-prunes-less": Verdict.HOLDS,
        "optimal-fastest": Verdict.HOLDS,
        "latency-halved": Verdict.HOLDS,
        "communication-halved": Verdict.HOLDS,
        "more-band-prunes-less": Verdict.HOLDS,
        "faster-cpu-gets-more": Verdict.PARTLY,
        "flat-ten-times-slower": Verdict.HOLDS,
    }


def test_edges_are_planned_until_none_is_blocked():
    """With interference the first exclusions raise other edges' shares, and so block a device that had a plan."""
    scheme, problems = round_problems(scenario_on(RUNGS["interference"].settings, PAPERS, 0, 0.07037))
    problem = problems[4]
    first = scheme.plan(problem)
    assert scheme.plan(problem.subset(~first.blocking_devices)).failed.any()
    found, in_plan = without_blockers(scheme, problem, first)
    assert not found.failed.any() and found.problem.num_devices == in_plan.sum()
    assert 0 < (~in_plan).sum() < problem.num_devices and (~in_plan)[first.blocking_devices].all()


@pytest.mark.filterwarnings("error")
def test_a_round_that_waits_for_a_device_without_rate_never_ends():
    """Two fades that no MCS reaches: no pruning waits for ever, dropping does not; ∞ survives files."""
    whole = timetable(scenario_on(RUNGS["interference"].settings, WHOLE, 0, 0.07031))
    dropping = timetable(scenario_on(RUNGS["interference"].settings, DROPPING, 0, 0.07031))
    assert whole.time_s[-1] == math.inf and dropping.time_s[-1] < 2.0
    assert whole.mean_ratio == dropping.mean_ratio == 0.0 and dropping.blocked_share > 0.5


def test_claims_about_plans_fail_where_the_numbers_do():
    found = planned(RUNGS["paper"], 0.03, seeds=(0,))
    slow, equal = found.round_s["no-pruning"], found.round_s["optimal"]
    wrong = replace(
        found,
        ratio=dict(zip(found.ratio, (0.5, 0.6, 0.4, 0.3), strict=True)),
        round_s={"optimal": equal, "equal-reused": equal, "no-pruning": 1.2 * equal},
        flat_s=8 * slow,
        kept=0.9,
        given=0.01,
        clocks={"20": (1.0, 1.0, 0.9), "400": (0.5, 1.0, 0.8)},
    )
    verdicts = [one["verdict"] for one in judged_plans({"paper": wrong})]
    assert verdicts == [Verdict.FAILS, Verdict.PARTLY, *[Verdict.FAILS] * 4, Verdict.HOLDS]
    assert judged_plans({"paper": replace(found, flat_s=8 * slow)})[-1]["verdict"] == Verdict.FAILS


@pytest.mark.parametrize("cycles", [20, 400])
def test_a_faster_device_is_pruned_less_and_gets_more_bandwidth_between_its_bounds(cycles):
    """Fig. 6: five devices at 135 m, 30 ms. At the cap a slow one needs more to send its smallest model."""
    rate = full_band_rate_bps(snr(db_to_ratio(-path_loss_db(np.full(5, 135.0), Radio())), Radio()), 20e6)
    capped = ap.PlanProblem(full_band_rate_bps=rate, seconds_per_weight=1e-8, deadline_s=0.03, max_pruning_ratio=0.95)
    assert _with_clock(capped, cycles).tolist() == [[False, True, True]]
    assert _growth_with_share(capped) <= 0.0


def ends(rung, levels):
    return [result(variant.name, PAPERS, seed, levels[level] + 0.001 * seed, 1.0)
            for level, variant in VARIANTS[rung].items() for seed in range(5)]  # fmt: skip


def test_accuracy_by_deadline_and_of_one_edge_is_judged_on_the_rungs_that_were_trained():
    levels = {"25 / 30": 0.70, "30 / 30": 0.75, "40 / 30": 0.79, "one edge": 0.60}
    found = {(one["rung"], one["claim"]): one["verdict"] for one in judged_trainings(ends("fading", levels))}
    assert found == {
        ("fading", "longer-deadline-higher-accuracy"): Verdict.HOLDS,
        ("fading", "hierarchy-beats-one-edge"): Verdict.HOLDS,
    }
    back = ends("fading", {"25 / 30": 0.75, "30 / 30": 0.70, "40 / 30": 0.60, "one edge": 0.80})
    assert [one["verdict"] for one in judged_trainings(back)] == [Verdict.FAILS, Verdict.FAILS]


@pytest.mark.parametrize("rung", JUDGED)
def test_one_edge_has_the_devices_samples_and_deadline_of_its_rung_and_no_interference(rung):
    study = RadioStudy(out=Path("x"))
    study.plans["deadlines"] |= {name: 0.06 for name in RUNGS}
    alone, among = (
        study.scenario(Arm(rung=one, method=PAPERS, seed=0)) for one in (VARIANTS[rung]["one edge"], RUNGS["mcs"])
    )
    assert alone.num_devices == 5 and among.num_devices == 25
    assert alone.data.train_samples * 5 == among.data.train_samples and alone.radio.reuse is None
    assert alone.plan.deadline_s == among.plan.deadline_s == 0.06
    later = study.scenario(Arm(rung=VARIANTS[rung]["40 / 30"], method=PAPERS, seed=0))
    assert later.plan.deadline_s == pytest.approx(0.08, rel=1e-6)  # rounded


def test_a_flat_round_with_a_device_out_of_reach_never_ends():
    found = planned(RUNGS["fading"], 0.0665, seeds=(0,))
    assert found.flat_endless > 0.5
    assert "never end" in judged_plans({"fading": found})[-1]["reason"]


def test_the_page_shows_the_tables_of_the_recorded_results():
    page = (DOCS / "radio-study.md").read_text()
    recorded = DOCS / "radio-study.json"
    for table in markdown(read_results(recorded), read_planned(recorded)).strip().split("\n\n"):
        assert table in page


def test_the_recorded_trainings_are_those_of_the_results(ledger):
    trained_runs = {one.learned for one in read_results(DOCS / "radio-study.json")}
    assert trained_runs <= set(read_ledger(DOCS / "radio-played.jsonl"))
