"""`airprune run` and `airprune compare` as a user meets them: streams, folders, exit status."""

import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.cli.compare import parse_seeds
from airprune.errors import UsageError
from airprune.results.statistics import Estimate, diverged_words, summary
from airprune.runs.layout import RunFolder
from airprune.runs.lock import locked
from airprune.runs.naming import default_folder
from support.processes import AIRPRUNE, PATIENCE_S, airprune
from support.tiny import final_bytes, tiny_file
from support.warm import Forked

pytestmark = pytest.mark.usefixtures("in_tmp_path", "blank_pictures")


@pytest.fixture
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def scenario(tmp_path) -> str:
    return str(tiny_file(tmp_path))


# airprune run


def test_run_prints_the_result_to_stdout_and_plain_progress_to_stderr(scenario):
    done = airprune("run", scenario, "--engine", "serial", "--out", "here")
    assert done.returncode == 0
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == [
        "test accuracy",
        "test loss",
        "simulated time",
        "uploaded",
        "energy",
        "mean pruning",
        "clock",
    ]
    lines = done.stderr.splitlines()
    assert lines[0].startswith("tiny: round 1/2 · loss ") and lines[1].startswith("tiny: round 2/2 · loss ")
    assert lines[2:] == ["Report: here/report.html"]
    assert "\x1b" not in done.stderr + done.stdout


def test_run_json_is_the_last_global_round_and_its_folder(command, scenario):
    status, out, _ = command("run", scenario, "--engine", "serial", "--json", "--out", "here")
    assert status == 0 and out.count("\n") == 1
    result = json.loads(out)
    assert result.pop("folder") == "here"
    assert result == RunFolder(Path("here")).records()[-1]
    assert result["kind"] == "global" and result["global_round"] == 2
    assert {"test_accuracy", "test_loss", "time_s", "uploaded_weights", "energy_j"} <= set(result)


@pytest.mark.parametrize(("target", "words"), [("0.0", " global rounds"), ("1.0", "not reached")])
def test_run_tells_what_its_target_took(command, scenario, target, words):
    status, out, _ = command("run", scenario, "--engine", "serial", "--out", "it", f"rounds.target_accuracy={target}")
    line = next(line for line in out.splitlines() if line.startswith("to "))
    assert status == 0 and line.endswith(words)
    _, out, _ = command("run", scenario, "--engine", "serial", "--out", "it", "--resume", "--json")  # without a target
    assert "to_target" not in json.loads(out)


def test_run_names_its_folder_by_scenario_seed_and_what_was_changed(command, scenario):
    assert command("run", scenario, "seed=3", "rounds.global_rounds=1", "--engine", "serial")[0] == 0
    assert RunFolder(Path("runs/tiny-rounds.global_rounds-1-seed3")).has_finished(
        ap.Scenario.load(scenario).with_values({"seed": 3, "rounds.global_rounds": 1})
    )


def test_a_scenario_file_that_was_edited_gets_a_folder_of_its_own(scenario, monkeypatch, tmp_path):
    first = ap.Scenario.load(scenario)
    folder = default_folder(tmp_path, first, ["engine.workers=3"])  # where work runs does not matter
    assert folder == tmp_path / "tiny-seed0"
    folder.mkdir()
    (folder / "scenario.toml").write_text(first.to_toml())
    assert default_folder(tmp_path, first, []) == folder
    edited = first.with_("plan.deadline_s", 0.02)
    assert default_folder(tmp_path, edited, []) == tmp_path / f"tiny-seed0-{edited.hash[:8]}"


def test_a_used_folder_is_refused_before_torch_is_imported(scenario, tmp_path):
    folder = tmp_path / "used"
    folder.mkdir()
    (folder / "scenario.toml").write_text(ap.Scenario.load(scenario).to_toml())
    code = (
        "import sys; from airprune.cli import main; status = main(sys.argv[1:]); print(status, 'torch' in sys.modules)"
    )
    words = ["run", str(scenario), "--out", str(folder)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
    assert done.stdout == "2 False\n"
    assert done.stderr == (
        f"error: {folder} already holds a run, which stopped after 0 global rounds; "
        "continue it with --resume or choose another --out.\n"
    )


def test_run_refuses_a_used_folder_and_resumes_it_when_asked(command, scenario):
    run = ("run", scenario, "--engine", "serial", "--out", "here")
    assert command(*run)[0] == 0
    before = final_bytes(Path("here"))
    status, out, err = command(*run)
    assert status == 2 and out == ""
    assert err == (
        "error: here already holds a run, finished: `airprune report here` shows it; or choose another --out.\n"
    )
    status, out, err = command(*run, "--resume", "--json")
    assert status == 0 and json.loads(out)["global_round"] == 2
    assert "round" not in err and final_bytes(Path("here")) == before
    status, _, err = command(*run, "--resume", "plan.deadline_s=0.02")
    assert status == 2 and "plan.deadline_s is 0.01 there, 0.02 here" in err


def test_run_gives_way_to_another_run_in_the_same_folder(command, scenario):
    with locked(Path("here")):
        status, out, err = command("run", scenario, "--engine", "serial", "--out", "here")
    assert status == 2 and out == ""
    assert err == "error: here is being written by another run; wait for it or choose another.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["smokey"], "did you mean 'smoke'?"),
        (["nowhere.toml"], "must be given a readable TOML file"),
        (["smoke", "plan.deadline_s"], "An override must be key=value"),
        (["smoke", "plan.deadline_s=-1"], "Scenario.plan.deadline_s must be > 0"),
        (["smoke", "plan.dead_line_s=1"], "did you mean 'deadline_s'?"),
        (["smoke", "plan.scheme=optimum"], "did you mean 'optimal'?"),
        (["smoke", "data.name=cifar"], "Scenario.data.name 'cifar' is unknown"),
        (["smoke", "--engine", "seriell"], "did you mean 'serial'?"),
        (["smoke", "--engine", "ray"], "known: serial, processes, dask"),
        (["smoke", "--workers", "0"], "--workers"),
        (["smoke", "--frobnicate"], "--frobnicate"),
        (["smoke", "--out", "a-file"], "a-file cannot be used as a run folder"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_status_2(command, arguments, words):
    Path("a-file").touch()
    status, out, err = command("run", *arguments)
    assert status == 2 and out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and words in err
    assert [path.name for path in Path().iterdir()] == ["a-file"]


def test_a_damaged_checkpoint_is_one_sentence_and_status_1(command, scenario):
    run = ("run", scenario, "--engine", "serial", "--out", "here")
    command(*run)
    Path("here/checkpoint/state.safetensors").write_bytes(b"garbage")
    status, out, err = command(*run, "--resume")
    assert status == 1 and out == "" and err.count("\n") == 1
    assert "cannot be read" in err


def test_an_infeasible_deadline_is_status_1(command, scenario):
    status, out, err = command(
        "run", scenario, "--engine", "serial", "plan.deadline_s=1e-7", "plan.infeasible=fail", "--out", "here"
    )
    assert status == 1 and out == "" and "Traceback" not in err and "has no plan" in err


def test_a_run_without_a_plan_names_devices_and_edges_as_their_table_does(command, scenario):
    Path("fleet.csv").write_text(
        "device,edge,snr_db,cpu_hz\ncam-1,north,43,3e9\ncam-2,north,42,3e9\nold-cam,south,41,10\ncam-4,south,40,3e9\n"
    )
    run = ("run", scenario, "--fleet", "fleet.csv", "--engine", "serial", "plan.infeasible=fail", "--out", "here")
    status, out, err = command(*run)
    assert "ignored" not in err
    assert status == 1 and out == "" and "Edge south has no plan" in err and "blocked by old-cam;" in err


def test_a_column_of_a_fleet_that_a_run_does_not_know_is_told(command, scenario):
    Path("fleet.csv").write_text("device,edge,snr_db,cpu_ghz,pruning_ratio\na,n,43,3,0.5\nb,n,42,3,0.5\n")
    _, _, err = command("run", scenario, "--fleet", "fleet.csv", "--engine", "serial", "data.name=glyfs")
    assert "note: ignored column cpu_ghz (did you mean cpu_hz?)" in err and "column pruning_ratio" not in err


def test_a_diverged_run_says_so(command, scenario):
    run = ("run", scenario, "train.learning_rate=1e30", "rounds.global_rounds=1")
    sentences = set()
    for scheme, engine in (("no-pruning", "serial"), ("optimal", "serial"), ("optimal", "processes")):
        place = f"{scheme}-{engine}"
        words = (*run, "--engine", engine, "--workers", 1, f"plan.scheme={scheme}", "--out", place)
        status, out, err = command(*words)
        *_, sentence = err.splitlines()
        assert status == 1 and out == "" and "Traceback" not in err
        assert sentence.startswith("error: Training diverged in edge round 1 of global round 1: the models of edge")
        assert sentence.endswith("are not made of finite numbers any more; lower train.learning_rate (now 1e+30).")
        sentences.add(sentence)
        assert command(*words, "--resume") == (1, "", f"{sentence}\n")
        status, _, err = command(*words)
        assert status == 2 and "already holds a run, diverged" in err
    assert len(sentences) == 1


def test_compare_goes_on_when_a_variant_diverges_and_shows_it(command, scenario):
    words = ("compare", scenario, "--engine", "serial", "--schemes", "no-pruning", "--seeds", "0-1", "--out", "both")
    words = (*words, "--also", "wild: plan.scheme=no-pruning train.learning_rate=1e30")
    status, out, err = command(*words)
    assert status == 0 and "[4/4] wild, seed 1: Training diverged in edge round 1 of global round 1" in err
    calm, wild = (next(line for line in out.splitlines() if line.startswith(name)) for name in ("no-pr", "wild"))
    assert wild.startswith("wild (diverged) ") and "diverged" not in calm
    status, out, err = command(*words, "--json")  # nothing is run again
    found = json.loads(out)
    assert status == 0 and "Training" not in err
    assert found["wild"]["diverged"] == 2 and "test_accuracy" not in found["wild"]
    assert "diverged" not in found["no-pruning"] and found["no-pruning"]["test_accuracy"]["mean"] > 0
    assert ">diverged<" in Path("both/report.html").read_text()


def test_a_mean_over_the_seeds_that_did_not_diverge_is_not_shown():
    fine, bad = [{"test_accuracy": 0.9}], [{"test_accuracy": None, "diverged": "Training diverged …"}]
    assert summary({"calm": [fine, fine], "wild": [fine, bad]})["wild"] == {}
    assert (diverged_words(1, 3), diverged_words(3, 3)) == ("1 of 3 diverged", "diverged")


def test_a_run_without_evaluation_shows_what_it_has(command, scenario):
    status, out, _ = command("run", scenario, "--engine", "serial", "rounds.evaluate_every=never", "--out", "here")
    assert status == 0 and "accuracy" not in out and "simulated time" in out


def test_an_exception_in_a_worker_surfaces_once_with_status_1(tmp_path, scenario, command):
    """`sitecustomize` is Python's own hook; here it breaks training, in worker processes only."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if any(word.endswith('worker_process.py') for word in sys.orig_argv):\n"
        "    from airprune.rounds.training import worker\n"
        "    def device_round(*arguments, **options): raise ArithmeticError('no more sums today')\n"
        "    worker.device_round = worker.round_in_steps = device_round\n"
        "    worker.train_at_once = lambda *arguments, **options: None\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = airprune("run", scenario, "--workers", 1, "--out", "here", env=environment)
    assert done.returncode == 1 and done.stdout == ""
    assert re.match(r"error: Device \d failed 3 times; ", done.stderr)
    assert done.stderr.count("Traceback") == 1 and done.stderr.count("ArithmeticError: no more sums today\n") == 1
    assert command("run", scenario, "--engine", "serial", "--out", "here", "--resume")[0] == 0


def on_a_terminal(*arguments: object) -> tuple[int, str]:
    """(exit status, what the terminal showed) with stderr on a terminal and stdout in a pipe."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while block := os.read(ours, 4096):
                shown.append(block)
        except OSError:  # Linux's way to say that the terminal is closed
            pass

    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    process = Forked([AIRPRUNE, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=theirs, env=environment)
    os.close(theirs)
    reader = threading.Thread(target=read)
    reader.start()
    status = process.wait(timeout=PATIENCE_S)
    reader.join(timeout=PATIENCE_S)
    os.close(ours)
    return status, b"".join(shown).decode()


def test_a_terminal_shows_a_bar_a_percentage_and_the_time(scenario):
    status, shown = on_a_terminal("run", scenario, "--engine", "serial", "--out", "here")
    assert status == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "starting …" in plain and "━" in plain and "100%" in plain
    assert re.search(r"\d:\d\d left", plain)
    assert "round 2/2 · loss " in plain and "Traceback" not in plain


# airprune compare


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> tuple[list[str], Path, subprocess.CompletedProcess]:
    """Three variants over two seeds: the command, its folder and what it said."""
    folder = tmp_path_factory.mktemp("comparison")
    command = ["compare", str(tiny_file(folder)), "--schemes", "optimal, no-pruning", "--seeds", "0-1"]
    command += ["--also", "flat: topology.name=flat plan.deadline_s=0.5"]
    command += ["--engine", "serial", "--out", str(folder / "out")]
    done = airprune(*command)
    assert done.returncode == 0, done.stderr
    return command, folder / "out", done


def test_compare_makes_a_folder_per_run_curves_and_a_table(comparison):
    _, out, done = comparison
    runs = {f"{name}-seed{seed}" for name in ("optimal", "no-pruning", "flat") for seed in (0, 1)}
    assert {path.name for path in out.iterdir()} == runs | {
        *("curves.png", "curves.pdf", "curves.svg", "report.html", "figures", "comparison.json", "tables.tex")
    }
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "curves.pdf").read_bytes().startswith(b"%PDF")
    assert "mean ± 95 % interval" in done.stdout
    for name in ("optimal", "no-pruning", "flat"):
        row = next(line for line in done.stdout.splitlines() if line.startswith(name))
        assert row.count("±") == 6
    assert done.stderr.splitlines()[0].startswith("[1/6] optimal, seed 0: round 1/2")
    assert done.stderr.splitlines()[-3:] == [
        f"Curves: {out / 'curves.png'}",
        f"Tables for LaTeX: {out / 'tables.tex'}",
        f"Report: {out / 'report.html'}",
    ]


def test_compare_variants_differ_only_in_what_was_asked(comparison):
    _, out, _ = comparison
    base = RunFolder(out / "optimal-seed0").scenario()
    differs = {
        name: {key for key, _, _ in base.diff(RunFolder(out / name).scenario())}
        for name in ("optimal-seed1", "no-pruning-seed0", "flat-seed0")
    }
    assert differs == {
        "optimal-seed1": {"seed"},
        "no-pruning-seed0": {"plan.scheme"},
        "flat-seed0": {"topology.name", "plan.deadline_s"},
    }


def test_compare_does_not_repeat_finished_runs_and_gives_means_as_json(comparison, command):
    words, out, _ = comparison
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    status, shown, err = command(*words, "--json")
    assert status == 0 and "round" not in err
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/*")} == before
    table = json.loads(shown)
    assert list(table) == ["optimal", "no-pruning", "flat"]
    last = [RunFolder(out / f"optimal-seed{seed}").records()[-1]["test_loss"] for seed in (0, 1)]
    estimate = table["optimal"]["test_loss"]
    assert estimate["mean"] == pytest.approx(np.mean(last), rel=1e-12)  # the same sum
    # Student's t with one degree of freedom: the half-width is 12.706 |a - b| / 2.
    assert estimate["half_width_95"] == pytest.approx(12.706 * abs(last[0] - last[1]) / 2, rel=1e-9)


def test_compare_tells_what_it_took_to_reach_a_target(comparison, command):
    words, out, _ = comparison
    status, shown, _ = command(*words, "--target", "0", "--json")  # what any model reaches, at its first test
    first = [RunFolder(out / f"optimal-seed{seed}").records() for seed in (0, 1)]
    seconds = [next(r["time_s"] for r in records if r["kind"] == "global") for records in first]
    told = json.loads(shown)["optimal"]["to_target"]
    assert status == 0 and (told["target_accuracy"], told["reached"], told["seeds"]) == (0.0, 2, 2)
    assert told["time_to_target_s"]["mean"] == pytest.approx(np.mean(seconds), rel=1e-12)  # the same sum
    assert told["time_ratio"]["to"] == "no-pruning" and told["time_ratio"]["pairs"] == 2
    status, shown, _ = command(*words, "--target", "1")
    row = next(line for line in shown.partition("To 100 % test accuracy")[2].splitlines() if line.startswith("optimal"))
    assert status == 0 and "0 of 2" in row and "not reached" in row
    assert "To 100 % test accuracy" in (out / "report.html").read_text()
    status, _, err = command(*words, "--target", "70")
    assert status == 2 and err.count("\n") == 1 and "--target" in err


def test_a_target_in_the_scenario_is_the_default_and_repeats_no_run(comparison, command):
    words, out, _ = comparison
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/records.jsonl")}
    status, shown, _ = command(*words[:2], "rounds.target_accuracy=0.0", *words[2:], "--json")
    assert status == 0 and json.loads(shown)["flat"]["to_target"]["target_accuracy"] == 0.0
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/records.jsonl")} == before


def test_compare_refuses_the_folder_of_another_comparison_before_torch_is_imported(scenario, tmp_path):
    folder = tmp_path / "runs/compare/optimal-seed0"
    folder.mkdir(parents=True)
    (folder / "scenario.toml").write_text(ap.Scenario.load(scenario).with_("plan.deadline_s", 0.02).to_toml())
    code = (
        "import sys; from airprune.cli import main; status = main(sys.argv[1:]); print(status, 'torch' in sys.modules)"
    )
    words = ["compare", scenario, "--schemes", "optimal"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
    assert done.stdout == "2 False\n"
    assert "runs/compare/optimal-seed0 holds another scenario: plan.deadline_s is 0.02 there, 0.01 here" in done.stderr


def test_compare_goes_on_with_runs_that_were_stopped(command, scenario):
    chosen = ap.Scenario.load(scenario).with_values({"engine.name": "serial", "plan.scheme": "optimal"})
    run = ap.run(chosen, out="both/optimal-seed0")
    next(run)
    run.close()
    words = ("compare", scenario, "--engine", "serial", "--schemes", "optimal", "--out", "both", "--json")
    status, out, _ = command(*words)
    assert status == 0 and json.loads(out)["optimal"]["test_loss"]["half_width_95"] is None
    assert len(RunFolder(Path("both/optimal-seed0")).records()) == 6


@pytest.mark.parametrize("change", ["rounds.evaluate_every=never", "train.learning_rate=1e30"])
def test_compare_leaves_out_what_was_not_measured(command, scenario, change):
    words = ("compare", scenario, change, "--engine", "serial", "--schemes", "no-pruning", "--out", "both")
    status, out, _ = command(*words, "--json")
    assert status == 0 and "test_loss" not in json.loads(out)["no-pruning"]
    status, out, _ = command(*words)
    assert status == 0 and "–" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--schemes", "optimal,optimum"], "did you mean 'optimal'?"),
        (["--schemes", ","], "must name at least one variant"),
        (["--schemes", "optimal,optimal"], "each once, got optimal, optimal"),
        (["--also", "a b: seed=1", "--also", "a-b: seed=2"], "each once"),
        (["--also", "topology.name=flat"], "--also must read `NAME: key=value …`"),
        (["--also", "flat: topology.nam=flat"], "did you mean 'name'?"),
        (["--seeds", "4-0"], "--seeds must be like 0-4 or 1,5,9"),
        (["--seeds", "0-9999"], "20,000 runs; at most 10,000"),
        (["--engine", "ray"], "known: serial, processes, dask"),
        (["--engine", "serial", "--scheduler", "tcp://127.0.0.1:9"], "--scheduler is for the engine dask"),
    ],
)
def test_a_wrong_comparison_is_one_sentence_and_status_2(command, options, words):
    status, out, err = command("compare", "smoke", *options)
    assert status == 2 and out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and words in err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("text", "seeds"), [("0", [0]), ("0-4", [0, 1, 2, 3, 4]), ("1,5,9", [1, 5, 9]), (" 7 , 1-2", [7, 1, 2])]
)
def test_seeds_are_read(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "-1", "1-", "3-1", "1,,2", "1.5", "0-99999999999", "1,1", "0-3,2"])
def test_wrong_seeds_are_refused(text):
    with pytest.raises(UsageError, match=r"^--seeds must "):
        parse_seeds(text)


def test_an_interval_is_students():
    scipy_stats = pytest.importorskip("scipy.stats")
    values = [1.0, 2.0, 4.0, 8.0]
    low, high = scipy_stats.t.interval(0.95, 3, loc=np.mean(values), scale=scipy_stats.sem(values))
    estimate = Estimate.of(values)
    assert estimate.mean == np.mean(values)
    assert estimate.half_width == pytest.approx((high - low) / 2, rel=2e-4)  # the table has four digits
    assert np.isnan(Estimate.of([1.0]).half_width)
