"""The league: fair statistics, equal tuning, honest tables, and a command that repeats nothing."""

import csv
import dataclasses
import json
import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tools import rekey_ledger

import airprune as ap
from airprune.cli import main
from airprune.errors import UnknownName, UsageError
from airprune.methods import METHODS, Recipe
from airprune.results.latex import escaped
from airprune.results.statistics import pareto_front
from airprune.results.traffic import LinkBits
from airprune.rounds.records import EdgeRecord, record_from
from airprune.scenario.model_shape import shape_of
from airprune.studies.claims import Verdict
from airprune.studies.league import claims, judges, tuning
from airprune.studies.league.document import document_of
from airprune.studies.league.finished import FinishedRun, RunStatistics, statistics_of
from airprune.studies.league.ledger import Line, read_ledger, write_ledger
from airprune.studies.league.lineup import ALONE, CENTRAL, FP32, SEED, WHOLE, lineup
from airprune.studies.league.runs import RunStore, backhaul_bits, league_run
from airprune.studies.league.schedule import SCHEDULES
from airprune.studies.league.sources import CLAIMS
from airprune.studies.league.standings import By, Result, standings
from airprune.studies.league.statistics import gap, holm, paired_p, ranks, student_p
from airprune.studies.league.tables import csv_rows, gap_text, latex, shown
from airprune.studies.league.tracks import TRACKS, tracks_named
from support.league import ABOUT, BASE, made_up, run_of, tiny_league
from support.tiny import tiny_file
from support.web_runs import edge_line

RECORDED = Path(__file__).parents[2] / "docs/league-played.jsonl"

# Statistics


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 30])
def test_student_p_is_scipys(freedom):
    t = np.array([0.0, 0.3, -1.7, 2.776, 12.0])
    expected = 2 * stats.t.sf(abs(t), freedom)
    assert [student_p(float(x), freedom) for x in t] == pytest.approx(expected, abs=1e-13)  # a finite sum near 1


def test_paired_differences_have_scipys_interval_and_p():
    rng = np.random.default_rng(0)
    for count in (2, 5, 10):
        mine, other = rng.normal(0.7, 0.05, count), rng.normal(0.68, 0.05, count)
        found = gap(dict(enumerate(mine)), dict(enumerate(other)))
        whole = stats.ttest_rel(mine, other)
        low, high = whole.confidence_interval(0.95)
        assert found.difference.mean == pytest.approx((low + high) / 2)
        assert found.difference.half_width == pytest.approx((high - low) / 2, rel=1e-3)  # quantiles of four digits
        assert found.p == pytest.approx(whole.pvalue, abs=1e-12)


def test_differences_are_taken_on_the_seeds_that_both_have():
    found = gap({0: 0.7, 1: 0.8, 2: 0.9}, {1: 0.5, 2: 0.6, 3: 0.0})
    assert found.difference.mean == pytest.approx(0.3) and gap({0: 1.0}, {1: 1.0}) is None
    assert math.isnan(gap({0: 0.7}, {0: 0.5}).p)


def test_equal_runs_differ_by_nothing_and_a_constant_difference_is_no_chance():
    assert paired_p([0.0, 0.0, 0.0]) == 1.0 and paired_p([0.25, 0.25]) == 0.0


def test_holm_by_hand():
    """0.01 × 4; 0.02 × 3 = 0.06; 0.03 × 2 = 0.06; 0.9 × 1: and never below the one before."""
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.5, 0.4]) == pytest.approx([0.8, 0.8]) and holm([0.9, 0.9]) == [1.0, 1.0]
    corrected = holm([0.01, math.nan, 0.04])
    assert corrected[0] == pytest.approx(0.02) and math.isnan(corrected[1]) and corrected[2] == pytest.approx(0.04)


def test_who_cannot_be_told_apart_shares_a_rank_and_the_next_counts_them():
    values = {
        "best": {0: 0.90, 1: 0.91, 2: 0.92},
        "twin": {0: 0.91, 1: 0.90, 2: 0.92},
        "worse": {0: 0.70, 1: 0.71, 2: 0.72},
        "none": {},
    }
    assert ranks(values) == {"best": 1, "twin": 1, "worse": 3, "none": 4}


def test_a_single_seed_gives_no_ranks():
    assert ranks({"a": {0: 0.9}, "b": {0: 0.1}}) == {"a": None, "b": None}


def test_the_pareto_front_has_who_is_beaten_by_nobody():
    points = [(3.0, 0.9), (1.0, 0.5), (2.0, 0.4), (2.0, 0.7), (4.0, 0.9), (1.0, 0.3)]
    front = pareto_front(points)
    assert [points[i] for i in front] == [(1.0, 0.5), (2.0, 0.7), (3.0, 0.9)]
    for i, (cost, value) in enumerate(points):
        beaten = any(c <= cost and v >= value and (c, v) != (cost, value) for c, v in points)
        assert (i in front) != beaten


# What is read of a run


def test_accuracy_at_a_time_is_that_of_the_last_model_before_it():
    run = run_of(0.3, 0.6, 0.5, round_s=0.1)
    assert run.accuracy == 0.5
    assert [run.accuracy_by(t) for t in (0.1, 0.199, 0.2, 9.0)] == [0.3, 0.3, 0.6, 0.5]
    assert math.isnan(run.accuracy_by(0.05)), "no model was there yet"
    assert run.has_room_by(0.41) and not run.has_room_by(0.39)


def test_conduct_counts_late_rounds_ratios_and_coverage_by_hand():
    record = record_from(json.loads(edge_line(1)))
    assert isinstance(record, EdgeRecord)
    first = dataclasses.replace(
        record, edge_latency_s=(0.02, 0.04), pruning_ratio=(0.1, 0.3, 0.9, None), fate=("ok", "ok", "late", "blocked")
    )
    own = dataclasses.replace(first, edge_latency_s=(0.02, None), deadline_s=0.01)
    found = statistics_of([first, own], deadline_s=0.03)
    assert found.mean_ratio == pytest.approx(0.2) and found.max_ratio == 0.3
    assert found.late_share == pytest.approx(2 / 3), "0.04 of the first round, and 0.02 after a deadline of its own"
    assert (found.min_count, found.uncovered) == (1, 1)


# Divisions and line-up


def test_track_b_halves_the_bits_and_keeps_the_pressure():
    """aW + (30 ms − aW) / 2 with a = 40 / 3 GHz and W = 43,888."""
    changed = TRACKS["B"].scenario(BASE)
    compute_s = 40 / 3e9 * 43_888
    assert changed.plan.bits_per_weight == 32
    assert (
        changed.plan.deadline_s
        == pytest.approx(compute_s + (0.03 - compute_s) / 2)
        == pytest.approx(0.015293, rel=1e-4)
    )


def test_track_g_gives_the_wide_model_as_much_time_per_weight():
    changed = TRACKS["G"].scenario(BASE)
    assert changed.plan.deadline_s == pytest.approx(0.03 * (18_720 + 64 * 3_136 + 640) / 43_888)


@pytest.mark.parametrize("name", TRACKS)
def test_every_track_has_its_references_and_who_plays_in_it(name):
    found = lineup(BASE, TRACKS[name])
    names = [entry.name for entry in found.entries]
    assert {SEED, FP32, "variance", WHOLE, ALONE, CENTRAL} <= set(names) and len(set(names)) == len(names)
    whole = next(entry for entry in found.entries if entry.name == WHOLE)
    assert whole.scenario.plan.scheme == "no-pruning" and not whole.is_method
    alone, everything = (next(e for e in found.entries if e.name == one) for one in (ALONE, CENTRAL))
    assert (alone.scenario.num_devices, alone.scenario.data.train_samples) == (1, 200)
    assert (everything.scenario.num_devices, everything.scenario.data.train_samples) == (1, 5_000)
    assert not alone.has_costs and not everything.has_costs


def test_who_plays_follows_from_what_a_method_is_made_of():
    names = {name: {e.name for e in lineup(BASE, TRACKS[name]).entries} for name in ("A", "B", "D1", "D2", "E")}
    assert set(METHODS) <= names["A"]
    assert "mem-sgd" not in names["B"] and "frozen-pruning" in names["B"], "codes choose their own bits"
    assert {"random", "hierfavg"} <= names["E"] and "fedprox" not in names["E"]
    assert "fedavg" not in names["D1"] and "fedavg" in names["D2"], "no edges, so no unlike edges"


def test_a_methods_own_settings_win_over_the_divisions():
    found = {entry.name: entry.scenario for entry in lineup(BASE, TRACKS["A"]).entries}
    assert found["adaptive-bits"].plan.deadline_s == "auto" and found[SEED].plan.deadline_s == 0.03
    assert found["liu2022"].plan.deadline_s == pytest.approx(0.35), "the paper's own for a network without edges"


def test_the_open_division_runs_longer_but_is_compared_after_the_same_time():
    entry = lineup(BASE, TRACKS["C"]).entries[0]
    assert entry.scenario.rounds.global_rounds == 4 * BASE.rounds.global_rounds
    assert TRACKS["C"].horizon_s(BASE) == TRACKS["A"].horizon_s(BASE) == pytest.approx(6 * 2 * 0.03)


def test_tracks_are_chosen_by_letter_and_unknown_ones_refused():
    assert [one.name for one in tracks_named("d, A")] == ["A", "D1", "D2"]
    assert [one.name for one in tracks_named("all")] == list(TRACKS)
    with pytest.raises(UnknownName, match="track"):
        tracks_named("Z")


def test_a_users_method_plays_by_its_name(unregistered):
    ap.register(Recipe(name="mine", summary="my own", settings={"train.momentum": 0.5}))
    found = {entry.name: entry for entry in lineup(BASE, TRACKS["A"]).entries}
    assert found["mine"].scenario.train.momentum == 0.5 and found["mine"].label == "own"
    few = [entry.name for entry in lineup(BASE, TRACKS["A"], ["mine"]).entries]
    assert "mine" in few and "hierfavg" not in few


# Tuning


def test_all_methods_have_the_same_tuning_runs_and_server_methods_trade_learning_rates_for_steps():
    entries = lineup(BASE, TRACKS["A"]).entries
    grids = {entry.name: tuning.grid(entry.scenario) for entry in entries}
    usual = [{"train.learning_rate": rate} for rate in (0.003, 0.01, 0.03, 0.1)]
    assert all(grid == usual for name, grid in grids.items() if name not in ("fedadam", "fedavgm"))
    adam = [(knobs["train.learning_rate"], knobs["aggregation.adam.rate"]) for knobs in grids["fedadam"]]
    assert adam == [(rate, pytest.approx(0.1 * factor)) for rate in (0.01, 0.03) for factor in (0.3, 1.0, 3.0)]


def test_a_tuning_run_takes_half_the_rounds_on_held_out_images():
    tried = tuning.tuning_scenario(BASE, tuning.grid(BASE)[2])
    assert (tried.rounds.global_rounds, tried.data.judge_on, tried.train.learning_rate) == (3, "held-out", 0.03)
    assert set(tuning.SEEDS).isdisjoint(SCHEDULES["full"].seeds)


def test_the_best_mean_of_complete_tuning_runs_is_chosen():
    few = tuning.grid(BASE)
    found = [(few[0], [0.5, 0.7]), (few[1], [0.9, None]), (few[2], [0.6, 0.7]), (few[3], [math.nan, 0.9])]
    assert tuning.best(found) is few[2]
    assert tuning.best([(few[1], [None, 0.9])]) is None


# Standings


@pytest.fixture(scope="module")
def table():
    return made_up()


def test_standings_rank_by_accuracy_at_equal_time_and_share_ties(table):
    assert [row.entry.name for row in table.rows][:3] == [FP32, "frozen-pruning", SEED]
    placed = {row.entry.name: row.ranks[By.TIME] for row in table.rows}
    assert placed == {
        FP32: 1, "frozen-pruning": 2, SEED: 3, "variance": 3, "mem-sgd": 5, WHOLE: None, ALONE: None, CENTRAL: None,
    }  # fmt: skip


def test_who_is_slow_is_compared_by_what_it_had_by_then(table):
    whole = table.row(WHOLE)
    assert whole.accuracy[By.TIME].mean == 0.6 and whole.accuracy[By.ROUNDS].mean == pytest.approx(0.801)


def test_the_target_is_95_percent_of_no_pruning_and_not_reaching_it_is_a_value(table):
    assert table.target == pytest.approx(0.95 * 0.801)
    rows = {row["method"]: row for row in csv_rows(table)}
    assert rows[FP32]["time_to_target_s"] == 2.0 and rows[FP32]["bits_to_target"] == 2e6
    assert rows[SEED]["time_to_target_s"] == rows[SEED]["joules_to_target"] == "not reached"
    assert rows[SEED]["reached"] == "0 of 3" and rows[ALONE]["reached"] is None


def test_bits_to_the_target_are_told_apart_by_link(table):
    """Two rounds to the target, each with 3 Mbit from edges to the cloud and 5 Mbit between devices."""
    result = next(row.result for row in table.rows if row.entry.name == FP32)
    links = {number: LinkBits(backhaul=3e6 * number, d2d=5e6 * number) for number in (1, 2)}
    runs = {seed: dataclasses.replace(run, links=links) for seed, run in result.runs.items()}
    told = standings(
        TRACKS["A"],
        [dataclasses.replace(result, runs=runs), *(row.result for row in table.rows if row.entry.name != FP32)],
        seeds=(0, 1, 2),
        horizon_s=2.0,
    )
    rows = {row["method"]: row for row in csv_rows(told)}
    kinds = ("bits_to_target", "backhaul_bits_to_target", "d2d_bits_to_target")
    assert [rows[FP32][name] for name in kinds] == [2e6, 6e6, 10e6]
    assert [rows["mem-sgd"][name] for name in kinds] == ["not reached"] * 3
    assert rows[WHOLE]["bits_to_target"] == 2e6 and rows[WHOLE]["backhaul_bits_to_target"] is None  # nothing is known
    conduct_table = shown(told)[1]
    place = [conduct_table.header.index(f"{link} (Mbit to target)") for link in ("edges to cloud", "between devices")]
    cells = next(row for row in conduct_table.rows if row[0].startswith(FP32))
    assert [float(cells[i].split()[0]) for i in place] == [6.0, 10.0]


def test_a_model_on_its_way_to_the_cloud_has_the_bits_that_a_run_charges():
    whole = shape_of(BASE).num_weights
    found = {name: backhaul_bits(BASE.with_("method", name)) for name in ("hierfavg", "scaffold", "hier-qsgd")}
    assert found["hierfavg"] == 64 * whole and found["scaffold"] == 2 * found["hierfavg"]
    assert found["hier-qsgd"] == 6 * whole + 64 * 4  # sign and 17 levels; a norm for each of four tensors
    personal = BASE.with_("method", "japp")
    assert backhaul_bits(personal) == 64 * (whole - 10 * 8)  # its last layer stays on the devices


def test_a_run_that_diverged_is_shown_as_such_and_no_tuning_run_that_did_is_chosen(table):
    calm = table.row(FP32).result
    runs = dict(calm.runs) | {0: run_of(0.3, math.nan, round_s=0.1)}
    assert runs[0].has_diverged and not runs[1].has_diverged and not runs[0].has_room_by(9.0)
    others = [row.result for row in table.rows if row.entry.name != FP32]
    result = dataclasses.replace(calm, runs=runs, untuned=runs)
    found = standings(TRACKS["A"], [result, *others], seeds=(0, 1, 2), horizon_s=2.0)
    cells = next(row for row in shown(found)[0].rows if row[1].startswith(FP32))
    assert "1 of 3 diverged" in cells
    json.dumps(csv_rows(found), allow_nan=False)
    first, second = ({"train.learning_rate": rate} for rate in (0.01, 0.1))
    assert tuning.best([(first, [0.2, 0.2]), (second, [0.9, runs[0].accuracy])]) is first


def test_gaps_are_paired_corrected_and_marked(table):
    row = table.row("frozen-pruning")
    assert gap_text(row.gaps[By.TIME, SEED]) == "+5.00 ± 0.00 *"
    assert table.row("variance").gaps[By.TIME, SEED].p_holm == 1.0
    assert table.row(SEED).gaps[By.TIME, SEED] is None and gap_text(None) == "–"


def test_a_method_that_ended_early_and_one_that_sends_codes_are_marked(table):
    names = [row[1] for row in shown(table)[0].rows]
    assert "mem-sgd ◇†" in names and SEED in names and "fp32 ◇" in names


def test_device_memory_is_that_of_the_declared_slots(table):
    assert table.row("mem-sgd").state_bytes == 43_888 * 4 and table.row(SEED).state_bytes == 0


def test_every_table_is_rectangular_and_latex_has_each_row_escaped(table):
    for one in shown(table):
        assert {len(row) for row in one.rows} == {len(one.header)} and set(one.words) <= set(one.header)
    text = latex([table], note="100 % & more")
    assert text.count(r" \\") == 1 + len(table.rows) and r"\toprule" in text
    assert (
        escaped("a_b & 5 % ± {x} \\ −1") == r"a\_b \& 5 \% $\pm$ \{x\} \textbackslash{} $-$1"
        and escaped("-2") == "$-$2"
    )


# Claims


def test_claims_are_judged_by_their_arms():
    def arms(first: float, second: float) -> dict[str, dict[int, FinishedRun]]:
        return {
            "frozen-pruning": {seed: run_of(first + 0.001 * seed) for seed in range(3)},
            "adaptive-pruning": {seed: run_of(second - 0.001 * seed) for seed in range(3)},
        }

    claim = next(claim for claim in CLAIMS if claim.name == "frozen-beats-zeroed")
    assert claims.judged(claim, arms(0.75, 0.70)).verdict is Verdict.HOLDS
    assert claims.judged(claim, arms(0.60, 0.70)).verdict is Verdict.FAILS
    missing = arms(0.75, 0.70) | {"adaptive-pruning": {0: None, 1: None, 2: None}}
    assert claims.judged(claim, missing).verdict is Verdict.UNDECIDED


def test_the_kinds_of_judgement_go_both_ways():
    fast = {"a": {s: run_of(0.4, 0.8, round_s=0.5) for s in range(2)}, "b": {s: run_of(0.4, 0.8) for s in range(2)}}
    turned = {"a": fast["b"], "b": fast["a"]}
    poor = {"a": {s: run_of(0.3, 0.5) for s in range(2)}, "b": fast["b"]}
    for judge, good, bad in (
        (judges.cheaper("a", "b"), fast, turned),
        (judges.spends_less("a", "b", "time_s"), fast, turned),
        (judges.ahead_at_equal_time("a", "b"), fast, turned),
        (judges.no_worse("a", "b"), fast, poor),
        (judges.trend("b", "a", rising=False), poor, {"a": poor["b"], "b": poor["a"]}),
        (judges.every(judges.cheaper("a", "b"), judges.no_worse("a", "b")), fast, poor),
    ):
        assert judge(good).verdict is Verdict.HOLDS and judge(bad).verdict is Verdict.FAILS


@pytest.mark.parametrize("last_is_best", [True, False])
def test_no_claim_of_a_source_is_decided_on_one_seed(last_is_best):
    for claim in claims.applicable(CLAIMS, BASE):
        names = list(claim.scenarios(BASE))
        order = names if last_is_best else names[::-1]
        arms = {name: {0: run_of(0.3 + 0.1 * i, 0.4 + 0.1 * i, round_s=1.0 / (1 + i))} for i, name in enumerate(order)}
        judgement = claims.judged(claim, {name: arms[name] for name in names})
        assert judgement.verdict is Verdict.UNDECIDED, claim.name
        assert "one seed has no interval" in judgement.reason, claim.name


def test_claims_wait_for_the_recipes_they_need():
    found = claims.applicable(CLAIMS, BASE)
    assert all(set(claim.needs) <= set(METHODS) for claim in found) and len(found) >= 12
    unknown = dataclasses.replace(CLAIMS[0], needs=("nobody-has-written-it",))
    assert claims.applicable([unknown], BASE) == []
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)


def test_the_arms_of_every_claim_differ():
    for claim in claims.applicable(CLAIMS, BASE):
        hashes = [scenario.hash for scenario in claim.scenarios(BASE).values()]
        assert len(set(hashes)) == len(hashes) >= 2, claim.name


# The command


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A league of one method and one seed on a tiny federation, played in this process."""
    folder = tmp_path_factory.mktemp("league")
    words = ["league", "--scenario", str(tiny_file(folder, global_rounds=1)), "--methods", "fp32", "--quick"]
    words += ["rounds.edge_rounds=1", "--out", str(folder / "out"), "--engine", "serial"]
    assert main(words) == 0
    return folder / "out", words


def test_the_command_writes_tables_a_picture_and_a_page(played):
    out, _ = played
    rows = list(csv.DictReader((out / "league.csv").read_text().splitlines()))
    assert [row["method"] for row in rows if row["is_method"] == "True"].count("fp32") == 1 and len(rows) == 6
    assert {path.name for path in out.glob("league*")} == {
        "league.csv", "league.tex", "league.html", "league.json", "league-A.png", "league-A.pdf", "league-A.svg",
    }  # fmt: skip
    page = (out / "league.html").read_text()
    assert "data:image/png;base64" in page and "<script" not in page and "How to read it" in page


def test_the_same_command_repeats_nothing_and_a_damaged_run_alone(played, capsys):
    out, words = played
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/records.jsonl")}
    victim = next(iter(before)).parent
    (victim / "final.safetensors").unlink()
    assert main(words) == 0
    after = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/records.jsonl")}
    assert (
        set(after) == set(before)
        and f"{len(before) - 1} of {len(before)} runs were finished" in capsys.readouterr().err
    )
    assert all(after[path] == before[path] for path in before if path.parent != victim)


def test_a_league_goes_on_from_the_ledger_of_another_without_its_folders(played, tmp_path, capsys):
    out, words = played
    ledger = out / "played.jsonl"
    here = [*words[:-4], "--out", str(tmp_path / "out"), "--engine", "serial", "--ledger", str(ledger)]
    assert main(here) == 0
    assert "0 ranked runs; 6 are recorded already" in capsys.readouterr().err
    assert not list((tmp_path / "out" / "runs").iterdir())
    for name in ("league.csv", "league.tex", "played.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (out / name).read_bytes()


def test_a_league_so_far_runs_nothing_and_says_how_much_there_is(played, tmp_path, capsys):
    out, words = played
    here = [*words[:-4], "--out", str(tmp_path / "out"), "--partial"]
    assert main(here) == 2 and not (tmp_path / "out").exists()
    assert "--partial needs a league that has been begun" in capsys.readouterr().err
    ledger = tmp_path / "three.jsonl"
    ledger.write_text("".join((out / "played.jsonl").read_text().splitlines(keepends=True)[:3]))
    assert main([*here, "--ledger", str(ledger)]) == 0
    assert not (tmp_path / "out" / "runs").exists()
    assert "so far 3 of 6 runs" in json.loads((tmp_path / "out" / "league.json").read_text())["note"]
    assert (tmp_path / "out" / "played.jsonl").read_bytes() == ledger.read_bytes()


def test_the_untuned_accuracy_says_on_how_many_seeds_it_rests_if_not_on_all():
    runs = {seed: run_of(0.5) for seed in range(3)}
    entry = next(one for one in lineup(BASE, TRACKS["A"], ["fp32"]).entries if one.name == FP32)
    for untuned, text in (({0: runs[0]}, "50.00 (1 seed)"), (runs, "50.00 ± 0.00")):
        result = Result(entry=entry, runs=runs, untuned=untuned)
        found = standings(TRACKS["A"], [result], seeds=(0, 1, 2), horizon_s=1.0)
        assert shown(found)[1].rows[0][-1] == text


def test_sigterm_stops_a_league_like_ctrl_c_with_its_ledger_written(played, tmp_path, capsys, monkeypatch):
    _, words = played
    before = signal.signal(signal.SIGTERM, lambda *_: None)

    def words_of_the_first(*_: object) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return "finished"

    monkeypatch.setattr("airprune.cli.campaign._words", words_of_the_first)
    try:
        assert main([*words[:-4], "--out", str(tmp_path / "out"), "--engine", "serial"]) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "Stopped with " in capsys.readouterr().err
    assert len(read_ledger(tmp_path / "out" / "played.jsonl")) == 1


def test_a_ledger_gives_back_what_was_measured_to_the_bit(tmp_path):
    conduct = RunStatistics(
        mean_ratio=0.1 + 0.2, max_ratio=math.nan, late_share=1 / 3, min_count=math.inf, uncovered=0.0
    )
    line = Line(
        run="a",
        label="A fp32, seed 0",
        where={"cores": 2},
        played=FinishedRun(tests=run_of(1 / 3).tests, conduct=conduct),
    )
    write_ledger(tmp_path / "x.jsonl", [line])
    (read,) = read_ledger(tmp_path / "x.jsonl").values()
    assert repr(read) == repr(line)


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "nonsense", '{"run": "a", "label": "b", "where": {}, "played": {"tests": 3}}']
)
def test_a_file_that_is_no_ledger_is_refused_in_one_sentence(text, tmp_path, capsys):
    (tmp_path / "x.jsonl").write_text(text + "\n")
    assert main(["league", "--quick", "--ledger", str(tmp_path / "x.jsonl"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "--ledger must be a file that a league wrote" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_untuned_league_has_no_tuning_runs_and_says_so():
    schedule = SCHEDULES["default"].untuned()
    assert not schedule.is_tuned and schedule.seeds == SCHEDULES["default"].seeds and "untuned" in schedule.note


def test_a_league_on_other_seeds_says_how_many():
    few, one = SCHEDULES["default"].on((0, 1)), SCHEDULES["quick"].on((7,))
    assert few.seeds == (0, 1) and ", 2 seeds, " in few.note and ", 1 seed, " in one.note


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--ledger", "/dev/null/none"], "--ledger must be a file that a league wrote"),
        (["--quick", "--full"], "--quick and --full exclude each other"),
        (["--track", "Q"], "track"),
        (["--track", ","], "--track must name at least one"),
        (["--methods", "fp33"], "--methods"),
        (["--methods", " , "], "--methods must name at least one method"),
        (["--seeds", "4-1"], "--seeds must be like 0-4"),
        (["--track", "D1", "--methods", "fedavg"], "None of --methods can take part in track D1"),
        (["plan.deadline_s=auto", "method=adaptive-bits"], "A league needs a deadline in seconds"),
        (["--scenario", "honest", "--track", "B"], "Track B needs the paper's clock"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(words, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("airprune.cli.league._play", lambda *_, **__: pytest.fail("it was not refused"))
    assert main(["league", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_folder_with_a_run_is_refused(tmp_path):
    (tmp_path / "scenario.toml").write_text("")
    with pytest.raises(UsageError, match="holds a single run"):
        _league_in(tmp_path)


def _league_in(folder: Path) -> None:
    from airprune.cli.league import _league

    _league(
        [], quick=True, full=False, untuned=False, track="A", methods=None, scenario=None, seeds=None, ledger=None,
        out=folder, options={},
    )  # fmt: skip


def test_a_tuned_league_tries_on_held_out_images_and_ranks_the_best_values_and_the_untuned(tmp_path, monkeypatch):
    """As if the accuracy of a run were its learning rate."""
    league = dataclasses.replace(tiny_league(tmp_path), is_tuned=True)
    trials = league.tuning_runs()
    assert {run.scenario.data.judge_on for run in trials} == {"held-out"} and {r.scenario.seed for r in trials} == {
        100,
        101,
    }
    monkeypatch.setattr(RunStore, "finished", lambda store, run: run_of(run.scenario.train.learning_rate))
    matches = [run for run in league.ranked_runs() if run.label.startswith(f"A {SEED}, ")]
    beside = [run for run in league.untuned_runs() if run.label.startswith(f"A {SEED}, ")]
    assert [run.scenario.train.learning_rate for run in matches] == [0.1, 0.1, 0.1]
    assert [run.scenario.train.learning_rate for run in beside] == [0.01, 0.01, 0.01]
    assert {run.scenario.data.judge_on for run in (*matches, *beside)} == {"test"}
    (found,) = league.standings({})
    row = found.row(SEED)
    assert (row.accuracy[By.ROUNDS].mean, row.untuned.mean, row.result.num_tuned) == (
        pytest.approx(0.1),
        pytest.approx(0.01),
        4,
    )


def test_a_run_that_failed_leaves_a_row_with_its_reason(tmp_path):
    league = tiny_league(tmp_path)
    failed = next(run.folder_name for run in league.ranked_runs() if run.label.startswith(f"A {FP32}, "))
    (found,) = league.standings({failed: "It has no plan."})
    assert found.row(FP32).result.trouble == "It has no plan." and found.row(FP32).accuracy[By.TIME] is None
    assert any("It has no plan." in note for note in document_of([found], [], **ABOUT)["divisions"][0]["notes"])


# Methods that the recorded league does not have yet, and those whose settings have changed since: once it has them, the
# test below says so.
NOT_RECORDED = {
    *("fixed-16", "fixed-8", "fixed-4", "fixed-2", "topk-1", "stc", "feddrop-all", "dpf-dense", "magnitude-rechosen"),
    *("minmax-pruning", "drop-stragglers", "fewer-steps", "fednova"),
}
CHANGED = {"sign-sgd", "hier-sign", "d2d-sign", "hybridfl", "fedadam", "fedpart"}


def test_the_recorded_league_has_every_run_under_the_name_that_a_league_asks_for():
    runs, recorded = rekey_ledger.runs_of(RECORDED), read_ledger(RECORDED)
    asked = {run.folder_name for run in runs if run.scenario.method not in NOT_RECORDED | CHANGED}
    assert asked <= set(recorded) and len(asked) > 1000
    others = [line.label for name, line in recorded.items() if name not in asked]
    assert all(any(name in label for name in (*CHANGED, "dpf-global")) for label in others)
    assert not {run.folder_name for run in runs if run.scenario.method in NOT_RECORDED} & set(recorded)


def test_a_ledger_is_rekeyed_by_its_scenarios_and_nothing_else_of_it_changes(tmp_path):
    ledger, scenarios = tmp_path / "played.jsonl", tmp_path / "scenarios.json"
    runs = [league_run("one", BASE, seed) for seed in (0, 1)]
    some = list(read_ledger(RECORDED).values())[:2]
    lines = [dataclasses.replace(line, label=f"run {n}") for n, line in enumerate(some)]
    named = [dataclasses.replace(line, run=f"old-{n}") for n, line in enumerate(lines)]
    write_ledger(ledger, named)
    scenarios.write_text(json.dumps({f"old-{n}": run.scenario.to_dict() for n, run in enumerate(runs)}))
    rekey_ledger.rekey(ledger, scenarios)
    now = [dataclasses.replace(line, run=run.folder_name) for line, run in zip(lines, runs, strict=True)]
    assert ledger.read_text() == "".join(f"{line.text()}\n" for line in now)
    with pytest.raises(SystemExit, match="has no scenario of 2 runs, the first: run 0"):
        rekey_ledger.rekey(ledger, scenarios)
