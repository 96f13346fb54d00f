"""`airprune league` and `airprune league verify`: steps that repeat nothing, and a ledger that explains itself."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tools import check_ledger, rekey_ledger

import airprune as ap
from airprune.cli import main
from airprune.errors import UsageError
from airprune.settings.toml_text import flat
from airprune.studies.league import judges, tuning
from airprune.studies.league.document import document_of
from airprune.studies.league.effort import Effort, Left, Load
from airprune.studies.league.finished import FinishedRun, RunStatistics
from airprune.studies.league.league_run import LeagueRun, Purpose, league_run
from airprune.studies.league.ledger import described, read_ledger, write_ledger
from airprune.studies.league.lineup import FP32, SEED, lineup
from airprune.studies.league.runs import RunStore, ranked_runs
from airprune.studies.league.schedule import SCHEDULES
from airprune.studies.league.sources import CLAIMS
from airprune.studies.league.standings import By, Result, standings
from airprune.studies.league.tables import shown
from airprune.studies.league.tracks import TRACKS
from airprune.studies.league.verifying import faults_of_lines, faults_of_run, sample_of, unreachable_commits
from support.league import ABOUT, BASE, line_of, run_of, tiny_league
from support.tiny import tiny_file

LEDGER = "played.jsonl"


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A league of one method and one seed on a tiny federation, in this process."""
    folder = tmp_path_factory.mktemp("league")
    words = ["league", "--scenario", str(tiny_file(folder, global_rounds=1)), "--methods", "fp32", "--quick"]
    words += ["rounds.edge_rounds=1", "--out", str(folder / "out"), "--engine", "serial"]
    assert main(words) == 0
    return folder / "out", words


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A tuned league of one method and two seeds, with the ledger and the document it wrote."""
    folder = tmp_path_factory.mktemp("tuned")
    words = ["league", "--scenario", str(tiny_file(folder, global_rounds=2)), "--methods", "fp32", "--seeds", "0,1"]
    words += ["rounds.edge_rounds=1", "--out", str(folder / "out"), "--engine", "serial"]
    assert main(words) == 0
    return folder / "out", words


def somewhere(words: list[str], out: Path) -> list[str]:
    return [*words[:-4], "--out", str(out), "--engine", "serial"]


def test_the_command_writes_tables_a_figure_and_a_report(played):
    out, _ = played
    rows = list(csv.DictReader((out / "league.csv").read_text().splitlines()))
    assert [row["method"] for row in rows if row["is_method"] == "True"].count("fp32") == 1 and len(rows) == 6
    assert {path.name for path in out.glob("league*")} == {
        "league.csv", "league.tex", "league.html", "league.json", "league-A.png", "league-A.pdf", "league-A.svg",
    }  # fmt: skip
    page = (out / "league.html").read_text()
    assert "data:image/png;base64" in page and "<script" not in page and "How to read it" in page


def test_the_work_is_stated_before_it_starts_and_after_each_step(tmp_path, played, capsys):
    _, words = played
    assert main(somewhere(words, tmp_path / "out")) == 0
    error = capsys.readouterr().err
    assert "To run: about 6 runs" in error and "of CPU time; 0 runs are there already" in error
    assert "of CPU time used; left: about 0 runs" in error


def test_the_same_command_repeats_nothing_and_a_damaged_run_alone(played, capsys):
    out, words = played
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/records.jsonl")}
    victim = next(iter(before)).parent
    (victim / "final.safetensors").unlink()
    assert main(words) == 0
    after = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/records.jsonl")}
    assert set(after) == set(before) and "To run: about 1 run," in capsys.readouterr().err
    assert all(after[path] == before[path] for path in before if path.parent != victim)


def test_a_league_goes_on_from_the_ledger_of_another_without_its_folders(played, tmp_path, capsys):
    out, words = played
    here = [*somewhere(words, tmp_path / "out"), "--ledger", str(out / LEDGER)]
    assert main(here) == 0
    assert "To run: about 0 runs, 0 min of CPU time; 6 runs are there already" in capsys.readouterr().err
    assert not list((tmp_path / "out" / "runs").iterdir())
    for name in ("league.csv", "league.tex", LEDGER):
        assert (tmp_path / "out" / name).read_bytes() == (out / name).read_bytes()


def test_a_league_so_far_runs_nothing_and_says_how_much_there_is(played, tmp_path, capsys):
    out, words = played
    here = [*words[:-4], "--out", str(tmp_path / "out"), "--partial"]
    assert main(here) == 2 and not (tmp_path / "out").exists()
    assert "--partial needs a league that has been begun" in capsys.readouterr().err
    ledger = tmp_path / "three.jsonl"
    ledger.write_text("".join((out / LEDGER).read_text().splitlines(keepends=True)[:3]))
    assert main([*here, "--ledger", str(ledger)]) == 0
    assert not (tmp_path / "out" / "runs").exists()
    document = json.loads((tmp_path / "out" / "league.json").read_text())
    assert "so far 3 runs; 3 rows are not complete" in document["note"] and len(document["dropped"]) == 3
    assert (tmp_path / "out" / LEDGER).read_bytes() == ledger.read_bytes()


def test_a_budget_stops_in_good_order_and_lists_what_was_dropped(played, tmp_path, capsys):
    _, words = played
    assert main([*somewhere(words, tmp_path / "out"), "--budget-hours", "0"]) == 0
    error = capsys.readouterr().err
    assert "The budget of 0 min is used up." in error and "Not complete: A adaptive-pruning" in error
    document = json.loads((tmp_path / "out" / "league.json").read_text())
    assert len(document["dropped"]) == 6 and "A fp32" in document["dropped"]
    assert "The budget ended before these rows were complete" in (tmp_path / "out" / "league.html").read_text()


def test_sigterm_stops_a_league_like_ctrl_c_with_its_ledger_written(played, tmp_path, capsys, monkeypatch):
    _, words = played
    before = signal.signal(signal.SIGTERM, lambda *_: None)

    def words_of_the_first(*_: object) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return "finished"

    monkeypatch.setattr("airprune.cli.campaign._words", words_of_the_first)
    try:
        assert main(somewhere(words, tmp_path / "out")) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "Stopped with " in capsys.readouterr().err
    assert len(read_ledger(tmp_path / "out" / LEDGER)) == 1


# Steps


def test_rows_are_finished_one_after_the_other_and_claims_follow_the_first_track(tmp_path, monkeypatch):
    """As if the accuracy of a run were its learning rate, up to 0.1."""
    league = dataclasses.replace(tiny_league(tmp_path), is_tuned=True, tracks=(TRACKS["A"], TRACKS["G"]))
    made: dict[str, LeagueRun] = {}

    def finished(store: RunStore, run: LeagueRun) -> FinishedRun | None:
        return run_of(0.1 - abs(0.1 - run.scenario.train.learning_rate)) if run.folder_name in made else None

    monkeypatch.setattr(RunStore, "finished", finished)
    monkeypatch.setattr(RunStore, "line", finished)
    order: list[LeagueRun] = []
    while runs := league.wanted(at_least=1):
        assert all(run.folder_name not in made for run in runs)
        made |= {run.folder_name: run for run in runs}
        order += runs
    rows = list(dict.fromkeys((run.track, run.method) for run in order))
    assert rows == [(track.name, entry.name) for track, entry in league.cells()], "row by row, track by track"
    for name in ("A", "G"):
        mine = [run for run in order if (run.track, run.method) == (name, FP32)]
        kinds = [run.purpose for run in mine]
        assert kinds == sorted(kinds, key=[Purpose.TUNING, Purpose.RANKED].index), "tuning first"
        ranked = [run for run in mine if run.purpose is Purpose.RANKED]
        assert [run.scenario.seed for run in ranked] == [0, 1, 2]
        assert {run.scenario.train.learning_rate for run in ranked} == {0.1}
        assert {run.scenario.data.judge_on for run in ranked} == {"test"}
        assert len(kinds) - 3 <= tuning.MAX_RUNS
    first, other = (
        sum(run.purpose is Purpose.TUNING for run in order if (run.track, run.method) == (name, FP32))
        for name in ("A", "G")
    )
    assert other == 3 + 4 < first, "another track tries three rates around that of the first"
    assert not league.open_cells()
    (found, _) = league.standings()
    assert found.row(SEED).accuracy[By.ROUNDS].mean == pytest.approx(0.1)
    assert found.row(SEED).result.knobs[tuning.RATE] == 0.1 and found.row(SEED).result.num_tuned >= 10


def test_a_league_hands_out_the_runs_of_claims_claim_by_claim_after_the_first_track(tmp_path, monkeypatch):
    costs = tuple(claim for claim in CLAIMS if not claim.is_trained)
    tracks = (TRACKS["A"], TRACKS["G"])
    league = dataclasses.replace(
        tiny_league(tmp_path), tracks=tracks, claims=costs, is_tuned=True, seeds=(0, 1, 2, 3, 4)
    )
    made: set[str] = set()
    rows = {run.folder_name for entry in league.lineups["A"].entries for run in league.wanted_by(TRACKS["A"], entry)}
    assert {run.folder_name for run in league.wanted(at_least=1)} < rows

    def finished(store: RunStore, run: LeagueRun) -> FinishedRun | None:
        return (
            run_of(0.5) if run.folder_name in made or (run.purpose is not Purpose.CLAIM and run.track != "G") else None
        )

    monkeypatch.setattr(RunStore, "finished", finished)
    monkeypatch.setattr(RunStore, "line", finished)
    handed_out = []
    while (runs := league.wanted(at_least=1)) and runs[0].purpose is Purpose.CLAIM:
        handed_out.append(runs[0].label.partition(" (")[0])
        assert {run.label.partition(" (")[0] for run in runs} == {handed_out[-1]}
        made |= {run.folder_name for run in runs}
    assert list(dict.fromkeys(handed_out)) == [claim.name for claim in costs]
    assert {run.track for run in runs} == {"G"}, "the next track follows"


def test_untuned_runs_are_made_beside_only_if_they_are_wanted(tmp_path, monkeypatch):
    monkeypatch.setattr(RunStore, "finished", lambda store, run: run_of(run.scenario.train.learning_rate))
    league = dataclasses.replace(tiny_league(tmp_path), is_tuned=True)
    entry = next(entry for _, entry in league.cells() if entry.name == SEED)
    alone = league.wanted_by(TRACKS["A"], entry)
    assert {run.purpose for run in alone} == {Purpose.RANKED}
    both = dataclasses.replace(league, is_beside=True).wanted_by(TRACKS["A"], entry)
    beside = [run for run in both if run.purpose is Purpose.UNTUNED]
    assert len(beside) == 3 and {run.scenario.train.learning_rate for run in beside} == {0.01}
    assert not {run.label for run in beside} & {run.label for run in alone}, "tuned and untuned runs share no label"


def test_a_run_that_failed_leaves_a_row_with_its_reason_and_is_not_wanted_again(tmp_path):
    league = tiny_league(tmp_path)
    entry = next(entry for _, entry in league.cells() if entry.name == FP32)
    runs = league.wanted_by(TRACKS["A"], entry)
    league.store.troubles |= {run.folder_name: "It has no plan." for run in runs}
    assert league.wanted_by(TRACKS["A"], entry) == []
    (found,) = league.standings()
    assert found.row(FP32).result.trouble == "It has no plan." and found.row(FP32).accuracy[By.ROUNDS] is None
    assert any("It has no plan." in note for note in document_of([found], [], **ABOUT)["divisions"][0]["notes"])


def test_the_cost_of_what_is_left_follows_measured_runs():
    effort = Effort()
    half = BASE.with_("rounds.global_rounds", 3)
    effort.add(BASE, 20.0)
    effort.add(half, None)
    assert effort.of(Load.of(BASE)) == pytest.approx(20.0) and effort.of(Load.of(half)) == pytest.approx(10.0)
    left = Left().plus(10, 14, 30.0).plus(5, 5, 60.0)
    assert str(left) == "about 15 runs (at most 19), 10 min of CPU time" or left.cpu_s == 600.0
    assert str(Left().plus(3, 3, None)) == "about 3 runs"


def test_an_untuned_league_has_no_tuning_runs_and_says_so():
    schedule = SCHEDULES["default"].untuned()
    assert not schedule.is_tuned and schedule.seeds == SCHEDULES["default"].seeds and "untuned" in schedule.note


def test_a_league_on_other_seeds_says_how_many():
    few, one = SCHEDULES["default"].on((0, 1)), SCHEDULES["quick"].on((7,))
    assert few.seeds == (0, 1) and ", 2 seeds, " in few.note and ", 1 seed, " in one.note


def test_the_untuned_accuracy_says_on_how_many_seeds_it_rests_if_not_on_all():
    runs = {seed: run_of(0.5 + 0.1 * seed) for seed in range(3)}
    entry = next(one for one in lineup(BASE, TRACKS["A"], ["fp32"]).entries if one.name == FP32)
    for untuned, text in (({0: runs[0]}, "50.0 (1 seed)"), (runs, "60 ± 25")):
        result = Result(entry=entry, runs=runs, untuned=untuned)
        found = standings(TRACKS["A"], [result], seeds=(0, 1, 2), horizon_s=1.0)
        assert shown(found)[1].rows[0][-1] == text


# The ledger


def test_a_ledger_gives_back_what_was_measured_to_the_bit(tmp_path):
    conduct = RunStatistics(
        mean_ratio=0.1 + 0.2, max_ratio=math.nan, late_share=1 / 3, min_count=math.inf, uncovered=0.0
    )
    run = league_run("A fp32", BASE, 0, purpose=Purpose.RANKED, track="A", method="fp32", knobs={"a": 0.1})
    line = line_of(run, FinishedRun(tests=run_of(1 / 3).tests, conduct=conduct))
    write_ledger(tmp_path / "x.jsonl", [line])
    (read,) = read_ledger(tmp_path / "x.jsonl").values()
    assert repr(read) == repr(line)


@pytest.mark.parametrize("name", [name for name, track in TRACKS.items() if track.exists])
def test_a_line_has_all_settings_that_make_its_scenario_again(name):
    for entry in lineup(BASE, TRACKS[name]).entries:
        (run,) = ranked_runs(TRACKS[name], entry, {tuning.RATE: 0.3}, [7])
        line = line_of(run, run_of(0.5))
        again = line.scenario_again()
        assert again.hash == line.scenario == run.scenario.hash and line.run == line.scenario[:16], entry.name
        plain = flat(ap.Scenario.preset(line.preset).to_dict())
        mine = flat(again.to_dict())
        differs = {key for key in mine if mine[key] != plain.get(key)} - {"name", "method"}
        assert {key for key in differs if not key.startswith("engine.")} <= set(line.settings), entry.name
        assert (line.purpose, line.track, line.method, line.tuned) == ("ranked", name, entry.name, {tuning.RATE: 0.3})


def test_a_scenario_of_no_preset_is_described_by_the_papers():
    assert described(BASE.with_("name", "mine"))[0] == "paper"


def test_every_line_says_what_it_was_for_what_it_cost_and_where_it_ran(tuned):
    lines = read_ledger(tuned[0] / LEDGER).lines
    assert {line.purpose for line in lines} == {"tuning", "ranked"}
    for line in lines:
        assert line.cpu_s > 0 and {"commit", "kernel", "cpu", "cores"} <= set(line.where)
        assert (line.seed >= 100) == (line.purpose == "tuning") and line.tuned
        assert line.settings["data.judge_on"] == "held-out" if line.purpose == "tuning" else True


def test_a_run_that_two_tables_share_has_a_line_for_each(tmp_path):
    store = RunStore(tmp_path, None)
    uses = [
        league_run("A fp32", BASE, 0, purpose=Purpose.RANKED, track="A", method="fp32"),
        league_run("some-claim (fp32)", BASE, 0),
    ]
    store.recorded = {uses[0].folder_name: line_of(uses[0], run_of(0.5))}
    assert [store.line(run).purpose for run in uses] == ["ranked", "claim"]
    write_ledger(tmp_path / "x.jsonl", store.used.values())
    read = read_ledger(tmp_path / "x.jsonl")
    assert len(read) == 1 and [line.label for line in read.lines] == [run.label for run in uses]


@pytest.mark.parametrize("text", ["{}", "[1]", "nonsense", '{"run": "a", "label": "b", "played": {"tests": 3}}'])
def test_a_file_that_is_no_ledger_is_refused_in_one_sentence(text, tmp_path, capsys):
    (tmp_path / "x.jsonl").write_text(text + "\n")
    assert main(["league", "--quick", "--ledger", str(tmp_path / "x.jsonl"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "--ledger must be a file that a league wrote" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_ledger_of_an_earlier_form_is_refused_in_one_sentence(tmp_path, capsys):
    (tmp_path / "x.jsonl").write_text('{"run": "a", "label": "b", "where": {}, "played": {"tests": []}}\n')
    assert main(["league", "--quick", "--ledger", str(tmp_path / "x.jsonl"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "which an earlier airprune wrote; run that league again" in error and error.count("\n") == 1


def test_a_ledger_is_rekeyed_by_its_settings_and_nothing_else_of_it_changes(tmp_path):
    ledger = tmp_path / LEDGER
    lines = [line_of(league_run("one", BASE, seed), run_of(0.5)) for seed in (0, 1)]
    write_ledger(ledger, lines)
    before = ledger.read_text()
    assert rekey_ledger.rekey(ledger) == 0 and ledger.read_text() == before
    write_ledger(ledger, [dataclasses.replace(line, scenario=f"{i}" * 64, run="x") for i, line in enumerate(lines)])
    assert rekey_ledger.rekey(ledger) == 2 and ledger.read_text() == before


def test_lines_of_a_commit_that_left_the_history_name_another_and_keep_the_lost_one(tmp_path):
    ledger = tmp_path / LEDGER
    lines = [line_of(league_run("one", BASE, seed), run_of(0.5)) for seed in (0, 1)]
    lost = dataclasses.replace(lines[0], where={**lines[0].where, "commit": "f" * 40})
    write_ledger(ledger, [lost, lines[1]])
    assert rekey_ledger.rekey(ledger, {"f" * 40: "a" * 40}) == 1
    changed, kept = read_ledger(ledger).lines
    assert changed.where == {**lost.where, "commit": "a" * 40, "lost_commit": "f" * 40}
    assert kept.text() == lines[1].text()


# Verifying


def test_a_league_is_verified_from_its_ledger_and_runs_of_it_are_the_same_again(tuned, capsys):
    ledger = tuned[0] / LEDGER
    assert main(["league", "verify", str(ledger), "--sample", "2", "--seed", "3", "--engine", "serial"]) == 0
    found = capsys.readouterr()
    assert "Everything agrees." in found.out and "Tables and verdicts: all agree" in found.err
    assert found.err.count("the same to the last bit") == 2 and "chosen by seed 3" in found.err


def test_a_changed_measurement_is_found_in_tables_and_by_running_it_again(tuned, tmp_path, capsys):
    for name in (LEDGER, "league.json", "league.csv"):
        shutil.copy(tuned[0] / name, tmp_path / name)
    lines = read_ledger(tmp_path / LEDGER).lines
    place, line = next((i, line) for i, line in enumerate(lines) if line.purpose == "ranked" and line.method == FP32)
    *tests, last = line.played.tests
    better = dataclasses.replace(last, test_accuracy=last.test_accuracy + 0.05)
    changed = dataclasses.replace(line, played=dataclasses.replace(line.played, tests=(*tests, better)))
    write_ledger(tmp_path / LEDGER, [*lines[:place], changed, *lines[place + 1 :]])
    assert main(["league", "verify", str(tmp_path / LEDGER)]) == 1
    assert "fp32" in capsys.readouterr().out
    assert any("test_accuracy" in fault for fault in faults_of_run(changed, line))
    other = dataclasses.replace(line, where={**line.where, "cpu": "another"})
    near = dataclasses.replace(last, test_accuracy=last.test_accuracy + 0.02)
    shifted = dataclasses.replace(line, played=dataclasses.replace(line.played, tests=(*tests, near)))
    assert faults_of_run(shifted, line) and not faults_of_run(shifted, other), "3 points on another CPU"
    assert faults_of_run(changed, other)


def test_a_line_whose_settings_do_not_make_its_scenario_is_found(tuned, tmp_path):
    lines = read_ledger(tuned[0] / LEDGER).lines
    assert faults_of_lines(read_ledger(tuned[0] / LEDGER)) == []
    wrong = dataclasses.replace(lines[0], settings={**lines[0].settings, "train.momentum": 0.123})
    write_ledger(tmp_path / "x.jsonl", [wrong, *lines[1:]])
    (fault,) = faults_of_lines(read_ledger(tmp_path / "x.jsonl"))
    assert lines[0].label in fault


def test_every_commit_must_be_in_the_history_of_a_clone(tuned, tmp_path):
    def git(*words: str) -> str:
        identity = ["-c", "user.name=x", "-c", "user.email=x@x"]
        done = subprocess.run(["git", "-C", str(tmp_path), *identity, *words], capture_output=True, text=True)
        return done.stdout.strip()

    ledger = tmp_path / "x.jsonl"
    line = read_ledger(tuned[0] / LEDGER).lines[0]
    write_ledger(ledger, [line])
    assert unreachable_commits(read_ledger(ledger), tmp_path) is None, "no clone"
    git("init")
    git("commit", "--allow-empty", "-m", "one")
    known = git("rev-parse", "HEAD")
    lines = [dataclasses.replace(line, label=commit, where={"commit": commit}) for commit in (known, "0" * 40)]
    write_ledger(ledger, lines)
    (found,) = unreachable_commits(read_ledger(ledger), tmp_path)
    assert found.startswith("0" * 40)


def test_a_sample_depends_on_its_seed_alone(tuned):
    ledger = read_ledger(tuned[0] / LEDGER)
    first, again, other = ([line.run for line in sample_of(ledger, 5, seed)] for seed in (1, 1, 2))
    assert first == again != other and len(set(first)) == 5


def test_verify_says_in_its_help_what_it_recomputes_and_what_it_runs_again(capsys):
    assert main(["league", "verify", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Recomputed, without running anything" in text and "Run again with --sample N" in text


# Recomputed without airprune


def test_the_independent_recomputation_imports_nothing_of_airprune_and_is_short():
    text = Path(check_ledger.__file__).read_text()
    assert "import airprune" not in text and "from airprune" not in text and len(text.splitlines()) < 150


def test_every_row_of_a_league_is_recomputed_independently(tuned, tmp_path):
    rows, _, faults = check_ledger.check(tuned[0] / LEDGER)
    assert rows == 6 and faults == []
    for name in (LEDGER, "league.json", "league.csv"):
        shutil.copy(tuned[0] / name, tmp_path / name)
    with (tmp_path / "league.csv").open() as file:
        rows = list(csv.DictReader(file))
    changed = {**rows[0], "accuracy_rounds": str(float(rows[0]["accuracy_rounds"]) + 0.01)}
    with (tmp_path / "league.csv").open("w") as file:
        writer = csv.DictWriter(file, changed)
        writer.writeheader()
        writer.writerows([changed, *rows[1:]])
    _, _, faults = check_ledger.check(tmp_path / LEDGER)
    assert len(faults) == 1 and "accuracy_rounds" in faults[0]


def rules() -> dict[str, str]:
    return dict(rule.split(": ") for rule in check_ledger.RULES.strip().replace("; ", "\n").splitlines())


def test_the_rules_that_are_recomputed_are_those_of_the_claims():
    claims = {claim.name: claim for claim in CLAIMS}
    assert len(rules()) >= 8
    for name, rule in rules().items():
        for part in rule.split(" & "):
            first, _, second, _ = check_ledger.PART.fullmatch(part).groups()
            assert {first, second} <= set(claims[name].scenarios(BASE)), name


@pytest.mark.parametrize(
    ("sign", "judge"),
    [
        (">", judges.better("a", "b")),
        (">>", judges.better("a", "b", much=True)),
        (">=", judges.no_worse("a", "b")),
        ("=", judges.same("a", "b")),
    ],
)
def test_verdicts_are_recomputed_independently(sign, judge):
    """On random arms of 3 to 20 seeds, with differences from none to large."""
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(120):
        count, gap, noise = rng.choice([3, 5, 10, 20]), rng.choice([-0.06, 0.0, 0.01, 0.05]), rng.choice([0.004, 0.03])
        first, second = (0.7 + mean + rng.normal(0, noise, count) for mean in (gap, 0.0))
        arms = {name: {i: run_of(float(v)) for i, v in enumerate(one)} for name, one in (("a", first), ("b", second))}
        expected = judge(arms).verdict.value
        assert check_ledger.verdict(sign, first - second) == expected
        seen.add(expected)
    assert {"holds", "does not hold", "cannot be decided"} <= seen


def test_verdicts_of_claims_are_recomputed_from_a_ledger(tmp_path):
    """Every claim with a rule, on random accuracies and costs of 5 to 20 seeds; a verdict that is changed is found."""
    rng = np.random.default_rng(0)
    lines, verdicts, seen = [], [], set()
    for claim in [claim for claim in CLAIMS if claim.name in rules()]:
        count, gap, scale = rng.choice([5, 10, 20]), rng.choice([-0.05, 0.0, 0.05]), rng.choice([0.8, 0.93, 1.2])
        arms: dict[str, dict[int, FinishedRun]] = {}
        for i, (name, scenario) in enumerate(claim.scenarios(BASE).items()):
            made = [league_run(f"{claim.name} ({name})", scenario, seed) for seed in range(count)]
            arms[name] = {
                seed: run_with(0.7 + gap * (i == 0) + rng.normal(0, 0.01), scale ** (i == 0) * rng.uniform(0.95, 1.05))
                for seed in range(count)
            }
            lines += [line_of(run, arms[name][run.scenario.seed]) for run in made]
        verdicts.append({"name": claim.name, "verdict": claim.judge(arms).verdict.value})
        seen.add(verdicts[-1]["verdict"])
    assert {"holds", "holds in part", "does not hold"} <= seen
    write_ledger(tmp_path / LEDGER, lines)
    (tmp_path / "league.csv").write_text("division,method\n")
    for changed in (False, True):
        if changed:
            verdicts[0]["verdict"] = "not what the runs say"
        (tmp_path / "league.json").write_text(json.dumps({"claims": verdicts}))
        _, num_verdicts, faults = check_ledger.check(tmp_path / LEDGER)
        assert num_verdicts == len(rules()) and len(faults) == changed, faults


def run_with(accuracy: float, cost: float) -> FinishedRun:
    """A run of one round with this accuracy, and this time and energy."""
    found = run_of(accuracy, round_s=cost)
    return dataclasses.replace(found, tests=(dataclasses.replace(found.tests[0], energy_j=cost),))


def test_tuned_values_are_recomputed_independently(tuned, tmp_path):
    for name in ("league.json", "league.csv"):
        shutil.copy(tuned[0] / name, tmp_path / name)
    lines = [
        dataclasses.replace(line, tuned={tuning.RATE: 1e-9}) if line.purpose is Purpose.RANKED else line
        for line in read_ledger(tuned[0] / LEDGER).lines
    ]
    write_ledger(tmp_path / LEDGER, lines)
    rows, _, faults = check_ledger.check(tmp_path / LEDGER)
    assert len(faults) == rows == 6 and all("is not the best tuned" in fault for fault in faults)


def test_the_recorded_league_is_recomputed_independently():
    """Ten rows at least, and eight verdicts as soon as claims are recorded."""
    ledger = recorded_ledger()
    rows, verdicts, faults = check_ledger.check(ledger)
    claims = json.loads(ledger.with_name("league-results.json").read_text())["claims"]
    assert faults == [] and rows >= 10 and verdicts >= min(8, len(claims))


def test_every_line_of_the_recorded_league_makes_its_scenario():
    assert faults_of_lines(read_ledger(recorded_ledger())) == []


def recorded_ledger() -> Path:
    """The recorded league, if it has the present form."""
    path = Path(__file__).parents[2] / "docs/league-played.jsonl"
    if "purpose" not in json.loads(path.read_text().splitlines()[0]):
        pytest.skip("the recorded league has the earlier form")
    return path


# Bad input


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
        tiny_league(tmp_path).check()
