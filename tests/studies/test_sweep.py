"""`airprune sweep`: which runs it consists of, that they are those of `airprune run`, and what happens to workers."""

import csv
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import airprune as ap
from airprune.cli import main
from airprune.errors import UsageError
from airprune.runs.layout import RunFolder
from airprune.runs.lock import locked
from airprune.studies.campaign import Sweep, SweepFolder
from airprune.studies.campaign.values import split
from support.processes import (
    PATIENCE_S,
    kill,
    start_airprune,
    this_process_workers,
    wait_for,
    wait_until_gone,
    workers_of,
)
from support.tiny import final_bytes, tiny_file
from support.warm import Forked

pytestmark = pytest.mark.usefixtures("warm_workers")

# Two runs fail for each four that do not.
DEADLINES = ("plan.infeasible=fail", "plan.deadline_s=0.01,0.02,1e-7", "seed=0-1")
NAMES = [f"plan.deadline_s-{deadline}-seed{seed}" for deadline in ("0.01", "0.02") for seed in (0, 1)]
FAILING = [f"plan.deadline_s=1e-07, seed {seed}" for seed in (0, 1)]
LONG = 25
DASK = str(Path(sys.executable).with_name("dask"))


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def scenario(tmp_path) -> Path:
    return tiny_file(tmp_path, global_rounds=1)


@pytest.fixture
def long(tmp_path) -> Path:
    """Long enough to be caught in the midst of it."""
    return tiny_file(tmp_path, global_rounds=LONG)


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, tuple[bytes, bytes]]:
    """What `airprune run` makes of the four runs of the deadlines and two seeds."""
    folder = tmp_path_factory.mktemp("expected")
    scenario = ap.Scenario.load(tiny_file(folder, global_rounds=1))
    scenario = scenario.with_values({"plan.infeasible": "fail", "engine.name": "serial"})
    for name in NAMES:
        _, deadline, seed = re.split("s-|-seed", name)
        list(ap.run(scenario.with_values({"plan.deadline_s": float(deadline), "seed": int(seed)}), out=folder / name))
    return {name: final_bytes(folder / name) for name in NAMES}


def bytes_in(out: Path) -> dict[str, tuple[bytes, bytes]]:
    return {path.name: final_bytes(path) for path in out.iterdir() if (path / "final.safetensors").exists()}


@pytest.fixture(scope="module")
def long_bytes(tmp_path_factory) -> tuple[bytes, bytes]:
    """What `airprune run` makes of the long scenario."""
    folder = tmp_path_factory.mktemp("long")
    scenario = ap.Scenario.load(tiny_file(folder, global_rounds=LONG)).with_("engine.name", "serial")
    list(ap.run(scenario, out=folder / "run"))
    return final_bytes(folder / "run")


def labels(*words: str, base: str = "smoke") -> list[str]:
    return [run.label for run in Sweep.of(ap.Scenario.preset(base), words).runs]


# Which runs.


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1", ["1"]),
        ("1,2", ["1", "2"]),
        (" 1 , 2 ", ["1", "2"]),
        ("[1,2],[3,4]", ["[1,2]", "[3,4]"]),
        ('["a,]",2],b', ['["a,]",2]', "b"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("'a,b'", ["'a,b'"]),
        ("/o'neil,/b", ["/o'neil", "/b"]),
        ("{a=1,b=[1,2]},{a=2}", ["{a=1,b=[1,2]}", "{a=2}"]),
        ("[1,2", ["[1,2"]),
        ("1,,2,", ["1", "", "2", ""]),
        ("", [""]),
    ],
)
def test_commas_in_brackets_and_quotes_do_not_separate(text, parts):
    assert split(text) == parts


def test_every_combination_runs_once_with_the_last_key_fastest():
    assert labels("plan.scheme=optimal,min-max", "plan.deadline_s=0.02,0.030", "seed=3") == [
        "plan.scheme=optimal plan.deadline_s=0.02, seed 3",
        "plan.scheme=optimal plan.deadline_s=0.03, seed 3",
        "plan.scheme=min-max plan.deadline_s=0.02, seed 3",
        "plan.scheme=min-max plan.deadline_s=0.03, seed 3",
    ]
    assert labels("seed=0-2,7") == [f"smoke, seed {seed}" for seed in (0, 1, 2, 7)]
    assert labels() == ["smoke, seed 0"]


def test_ranges_are_for_keys_that_take_whole_numbers():
    assert len(labels("network.devices_per_edge=2-6", "data.test_samples=100-101")) == 10
    runs = Sweep.of(ap.Scenario.preset("smoke"), ["name=0-9"]).runs
    assert [run.scenario.name for run in runs] == ["0-9"]
    with pytest.raises(UsageError, match=r"Scenario\.train\.momentum must be a number"):
        labels("train.momentum=0-1")


def test_a_list_is_one_value():
    runs = Sweep.of(
        ap.Scenario.preset("smoke"), ["rounds.edge_rounds=[1,2],[2,1]", "network.devices_per_edge=[1,2]"]
    ).runs
    assert [run.scenario.rounds.edge_rounds for run in runs] == [(1, 2), (2, 1)]
    assert {run.scenario.network.devices_per_edge for run in runs} == {(1, 2)}


def test_single_values_are_for_all_and_runs_are_serial_inside():
    words = ["plan.deadline_s=0.02,0.03", "train.momentum=0.5", "engine.workers=3"]
    sweep = Sweep.of(ap.Scenario.preset("smoke").with_("engine.name", "dask"), words)
    assert sweep.keys == ("plan.deadline_s",)
    assert (sweep.engine.name, sweep.engine.workers) == ("dask", 3)
    for run in sweep.runs:
        assert run.scenario.train.momentum == 0.5
        assert (run.scenario.engine.name, run.scenario.engine.workers) == ("serial", None)


def test_folder_names_are_portable_and_tell_all_runs_apart():
    words = [
        'model.prunable=["fc1"],["fc2"],["fc1","fc2"],["a_b"],["A_b"]',
        "radio.noise_power_dbm=-110,-100",
        "seed=0-1",
    ]
    names = [run.folder_name for run in Sweep.of(ap.Scenario.preset("smoke"), words).runs]
    assert len({name.lower() for name in names}) == 20
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,150}", name) for name in names)
    long_value = ",".join(f'"layer{n}"' for n in range(100))
    (run,) = Sweep.of(ap.Scenario.preset("smoke"), [f"model.prunable=[{long_value}],[]"]).runs[:1]
    assert len(run.folder_name) < 150
    assert labels_and_names("plan.deadline_s=0.025,0.03", "seed=3")[0][1] == "plan.deadline_s-0.025-seed3"


def labels_and_names(*words: str) -> list[tuple[str, str]]:
    return [(run.label, run.folder_name) for run in Sweep.of(ap.Scenario.preset("smoke"), words).runs]


def test_a_folder_name_depends_on_the_values_alone():
    small = dict(labels_and_names("plan.deadline_s=0.025,0.03", "train.momentum=0.1,0.2"))
    other_order = {name for _, name in labels_and_names("train.momentum=0.2,0.10,0.3", "plan.deadline_s=0.03,0.025,1")}
    assert set(small.values()) < other_order


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["plan.dead_line_s=1,2"], "Scenario.plan.dead_line_s is unknown; did you mean 'deadline_s'?"),
        (["deadline_s=1,2"], "did you mean 'plan.deadline_s'?"),
        (["plan.deadline_s=0.01,-1"], 'Scenario.plan.deadline_s must be > 0 or "auto", got -1'),
        (["plan.scheme=optimal,optimum"], "did you mean 'optimal'?"),
        (["data.name=glyphs,cifar"], "Scenario.data.name 'cifar' is unknown"),
        (["network.num_edges=2,3", "rounds.edge_rounds=[1,2]"], "must have one entry for each of 3 edges"),
        (["network.table=nowhere.csv"], "Scenario.network.table must be an existing file"),
        (["plan.deadline_s=0.01,0.010"], "the same run twice, as plan.deadline_s=0.01, seed 0; give every value once"),
        (["seed=0-3,2"], "the same run twice, as smoke, seed 2"),
        (["seed=1", "seed=2"], "seed is given twice; put all its values in one list"),
        (["seed"], "A setting must be key=value or key=value,value, got 'seed'"),
        (["seed="], "seed must be a value, or values with commas between them, got ''"),
        (["seed=1,,2"], "got '1,,2'"),
        (["seed=5-1"], "seed must have ranges that go up, got '5-1'"),
        (["seed=0-9999", "plan.deadline_s=1,2"], "needs 20,000 runs; at most 10,000"),
        (["seed=0-99999999999"], "seed=0-99999999999 needs 100,000,000,000 runs or more; at most 10,000"),
        (["engine.workers=1,2"], "engine.workers cannot be swept, since results do not depend on it"),
        (["name=a,b"], "name cannot be swept"),
        (["--engine", "daks"], "did you mean 'dask'?"),
        (["--workers", "0"], "--workers"),
        (["--engine", "serial", "--scheduler", "tcp://127.0.0.1:1"], "--scheduler is for the engine dask"),
        (["--out", "a-file"], "a-file cannot be used as a run folder"),
    ],
)
def test_a_wrong_sweep_is_one_sentence_and_status_2_before_anything_runs(command, words, sentence):
    Path("a-file").touch()
    status, out, err = command("sweep", "smoke", *words)
    assert status == 2 and out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and sentence in err
    assert [path.name for path in Path().iterdir()] == ["a-file"]


# What it leaves behind.


def check_failures(result: dict, err: str) -> None:
    """Both infeasible runs are in the result, and once each in the last lines."""
    assert sorted(failure["run"] for failure in result["failed"]) == FAILING
    assert all("has no plan" in failure["why"] for failure in result["failed"])
    assert err.splitlines()[-2:] == [f"failed: {failure['run']}: {failure['why']}" for failure in result["failed"]]
    assert err.count("has no plan") == 2 and "Traceback" not in err


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[Path, Path]:
    """(scenario, out) of a sweep that was run in this process."""
    folder = tmp_path_factory.mktemp("swept")
    scenario, out = tiny_file(folder, global_rounds=1), folder / "out"
    assert main(["sweep", str(scenario), *DEADLINES, "--engine", "serial", "--out", str(out), "--json"]) == 1
    return scenario, out


def test_a_run_that_diverges_is_a_result_of_the_sweep(command, scenario):
    words = ("sweep", scenario, "plan.scheme=no-pruning", "train.learning_rate=0.05,1e30", "--engine", "serial")
    status, out, err = command(*words, "--out", "out")
    assert status == 0 and "[2/2] train.learning_rate=1e+30, seed 0: diverged" in err and "failed" not in err
    assert any(re.match(r"1e\+30 +1, diverged +– ", line) for line in out.splitlines())
    assert [line.split(",")[3] for line in Path("out/sweep.csv").read_text().splitlines()][1:] == [
        "finished",
        "diverged",
    ]
    status, out, err = command(*words, "--out", "out", "--json")
    assert status == 0 and "2 of 2 runs were finished before." in err
    assert [row.get("diverged") for row in json.loads(out)["rows"]] == [None, 1]


def test_runs_are_those_of_airprune_run_to_the_byte(swept, expected):
    assert bytes_in(swept[1]) == expected


def test_json_has_means_over_seeds_and_failures_once(swept, command):
    scenario, out = swept
    before = {path: path.stat().st_mtime_ns for name in NAMES for path in (out / name).iterdir()}
    status, shown, err = command("sweep", scenario, *DEADLINES, "--engine", "serial", "--out", out, "--json")
    assert status == 1
    assert err.startswith(f"4 of 6 runs were finished before.\n[5/6] {FAILING[0]}: failed · 0:00:0")
    assert {path: path.stat().st_mtime_ns for name in NAMES for path in (out / name).iterdir()} == before
    result = json.loads(shown)
    check_failures(result, err)
    assert result["folder"] == str(out)
    assert [(row["values"], row["seeds"], row["runs"]) for row in result["rows"]] == [
        ({"plan.deadline_s": 0.01}, [0, 1], 2),
        ({"plan.deadline_s": 0.02}, [0, 1], 2),
        ({"plan.deadline_s": 1e-7}, [], 2),
    ]
    losses = [RunFolder(out / f"plan.deadline_s-0.02-seed{seed}").records()[-1]["test_loss"] for seed in (0, 1)]
    estimate = result["rows"][1]["estimates"]["test_loss"]
    assert estimate["mean"] == pytest.approx(np.mean(losses), rel=1e-12)  # the same sum
    # Student's t with one degree of freedom: the half-width is 12.706 |a - b| / 2.
    assert estimate["half_width_95"] == pytest.approx(12.706 * abs(losses[0] - losses[1]) / 2, rel=1e-9)
    assert result["rows"][2]["estimates"] == {}


def test_csv_has_one_row_per_run_with_its_last_global_round(swept):
    _, out = swept
    with (out / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["folder"] for row in rows[:4]] == NAMES
    for row in rows[:4]:
        last = RunFolder(out / row["folder"]).records()[-1]
        assert row["state"] == "finished" and row["folder"].endswith(f"-seed{row['seed']}")
        assert f"plan.deadline_s-{row['plan.deadline_s']}-" in row["folder"]
        assert {name: float(row[name]) for name in last if name != "kind"} == {
            name: value for name, value in last.items() if name != "kind"
        }
    failed = [(row["state"], row["seed"], row["test_loss"]) for row in rows[4:]]
    assert failed == [("failed", "0", ""), ("failed", "1", "")]


def test_table_and_report_show_what_is_there(swept, command):
    scenario, out = swept
    status, shown, err = command("sweep", scenario, *DEADLINES, "--engine", "serial", "--out", out)
    lines = shown.splitlines()
    assert status == 1 and "mean ± 95 % interval" in lines[0]
    heads = next(i for i, line in enumerate(lines) if line.startswith("deadline_s"))
    assert lines[heads].split()[:4] == ["deadline_s", "seeds", "accuracy", "%"]
    first, second, failed = lines[heads + 1 : heads + 4]
    assert [line.split()[:2] for line in (first, second)] == [["0.01", "2"], ["0.02", "2"]]
    assert first.count("±") == second.count("±") == 6
    assert failed.split() == ["1e-07", "0", "of", "2", *"––––––"]
    assert f"Report: {out / 'report.html'}" in err.splitlines()
    assert "plan.deadline_s-0.02" in (out / "report.html").read_text()


def test_a_target_adds_costs_flags_and_a_crossover(swept, command):
    scenario, out = swept
    words = ("sweep", scenario, *DEADLINES, "--engine", "serial", "--out", out)
    status, shown, _ = command(*words, "--target", "0", "--json")
    rows = json.loads(shown)["rows"]
    assert status == 1 and [row["to_target"]["reached"] for row in rows] == [2, 2, 0]
    seconds = [RunFolder(out / f"plan.deadline_s-0.02-seed{seed}").records()[-1]["time_s"] for seed in (0, 1)]
    assert rows[1]["to_target"]["time_to_target_s"]["mean"] == pytest.approx(np.mean(seconds), rel=1e-12)  # same sum
    assert (out / "crossover.png").read_bytes().startswith(b"\x89PNG")
    with (out / "sweep.csv").open(newline="") as file:
        assert [row["reached"] for row in csv.DictReader(file)] == ["True"] * 4 + ["", ""]
    _, shown, _ = command(*words, "--target", "1")
    assert "To 100 % test accuracy" in shown and "not reached" in shown
    with (out / "sweep.csv").open(newline="") as file:
        found = [(row["reached"], row["time_to_target_s"]) for row in csv.DictReader(file)]
    assert found[:4] == [("False", "")] * 4
    assert "crossover.csv" in (out / "report.html").read_text()


def test_a_sweep_that_grows_does_only_what_is_new(command, scenario):
    command("sweep", scenario, "plan.deadline_s=0.01,0.02", "--engine", "serial", "--out", "out", "--json")
    before = bytes_in(Path("out"))
    status, shown, err = command(
        "sweep", scenario, "plan.deadline_s=0.02,0.03", "seed=0-1", "--engine", "serial", "--out", "out", "--json"
    )
    assert status == 0 and "1 of 4 runs were finished before." in err
    assert [line.split(":")[0] for line in err.splitlines()[1:4]] == [
        "[2/4] plan.deadline_s=0.02, seed 1",
        "[3/4] plan.deadline_s=0.03, seed 0",
        "[4/4] plan.deadline_s=0.03, seed 1",
    ]
    assert [row["seeds"] for row in json.loads(shown)["rows"]] == [[0, 1], [0, 1]]
    assert before.items() <= bytes_in(Path("out")).items() and len(bytes_in(Path("out"))) == 5


def test_another_scenario_in_the_same_folder_is_refused(swept, command):
    scenario, out = swept
    before = bytes_in(out), (out / "sweep.json").read_bytes()
    status, shown, err = command("sweep", scenario, *DEADLINES, "train.momentum=0.5", "--out", out)
    assert status == 2 and shown == "" and err.count("\n") == 1
    assert f"{out} holds a sweep of another scenario: train.momentum is 0.5 here, and another value there" in err
    assert (bytes_in(out), (out / "sweep.json").read_bytes()) == before
    status, _, err = command("sweep", scenario, "--out", out / NAMES[0])
    assert status == 2 and "holds a single run; choose another folder for a sweep" in err


def test_a_folder_that_is_being_written_is_refused(swept, command):
    scenario, out = swept
    with locked(out):
        status, shown, err = command("sweep", scenario, *DEADLINES, "--out", out)
    assert status == 2 and shown == "" and "is being written by another run" in err


def test_without_any_finished_run_there_is_no_report(command, scenario):
    words = ["plan.infeasible=fail", "plan.deadline_s=1e-7,1e-8"]
    status, shown, err = command("sweep", scenario, *words, "--engine", "serial", "--out", "out")
    assert status == 1 and "Report" not in err
    assert [line.split() for line in shown.splitlines()[2:]] == [
        ["1e-07", "0", "of", "1", *"––––––"],
        ["1e-08", "0", "of", "1", *"––––––"],
        ["Clock:", "the", "paper's."],
    ]


def test_a_terminal_shows_a_bar_of_runs_and_the_last_accuracy(scenario, monkeypatch):
    ours, theirs = os.openpty()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        assert main(["sweep", str(scenario), "seed=0-1", "--engine", "serial", "--out", "out", "--json"]) == 0
        shown = os.read(ours, 100_000).decode()
    os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "0/2 runs" in plain and "2/2 runs" in plain and "starting …" in plain
    assert re.search(r"left accuracy \d+\.\d% · tiny, seed 1", plain)


# Worker processes.


def test_worker_processes_end_in_the_bytes_of_airprune_run(command, scenario, expected):
    status, shown, err = command("sweep", scenario, *DEADLINES, "--workers", 2, "--out", "out", "--json")
    assert status == 1 and bytes_in(Path("out")) == expected
    check_failures(json.loads(shown), err)
    assert this_process_workers() == []


@pytest.mark.cold
def test_a_run_that_workers_die_of_is_given_up_and_the_others_go_on(tmp_path, command, scenario, monkeypatch):
    """`sitecustomize` is Python's own hook; here worker processes die of seed 1."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if any(word.endswith('worker_process.py') for word in sys.orig_argv):\n"
        "    import airprune.studies.campaign.whole_run as whole_run\n"
        "    run = whole_run.run_scenario\n"
        "    def deadly(scenario, **options):\n"
        "        open('tries', 'a').write('x') if scenario.seed == 1 else None\n"
        "        return os.kill(os.getpid(), 9) if scenario.seed == 1 else run(scenario, **options)\n"
        "    whole_run.run_scenario = deadly\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    status, shown, err = command("sweep", scenario, "seed=1,0", "--workers", 1, "--out", "out", "--json")
    assert status == 1 and json.loads(shown)["rows"][0]["seeds"] == [0]
    assert err.splitlines()[-1].startswith("failed: tiny, seed 1: Its worker died 3 times, last by signal SIGKILL;")
    assert Path("tries").read_text() == "xxx"


def test_killed_workers_are_replaced_and_a_killed_sweep_continues(tmp_path, command, long, long_bytes):
    folder = RunFolder(tmp_path / "out/tiny-seed0")

    def wait_for_records(more_than: int) -> None:
        wait_for(lambda: len(folder.records()) > more_than, "more records")

    process = start_airprune("sweep", long, "seed=0-1", "--workers", 1, "--out", "out")
    wait_for_records(2)
    (first,) = workers_of(process.pid)
    os.kill(first, signal.SIGKILL)
    wait_until_gone([first])
    wait_for_records(len(folder.records()))
    (second,) = workers_of(process.pid)
    kill(process)
    wait_until_gone([second])
    assert first != second and not folder.is_finished
    status, _, err = command("sweep", long, "seed=0", "--engine", "serial", "--out", "out", "--json")
    assert status == 0, err
    assert final_bytes(folder.path) == long_bytes


def test_ctrl_c_says_what_is_kept_and_that_the_same_command_continues(tmp_path, long):
    process = start_airprune("sweep", long, "seed=0-2", "--workers", 1, "--out", "out")
    wait_for(lambda: len(RunFolder(tmp_path / "out/tiny-seed0").records()) > 2, "some records")
    workers = workers_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and out == ""
    assert err == "Stopped with 0 of 3 runs finished; out keeps what is done. The same command continues.\n"
    wait_until_gone(workers)


# A Dask cluster.


def no_remains(out: Path) -> bool:
    return not [path for path in out.iterdir() if path.name.startswith((".shared", ".arriving"))]


def test_a_cluster_of_its_own_ends_in_the_bytes_of_airprune_run(command, scenario, expected):
    words = ["sweep", scenario, *DEADLINES, "--engine", "dask", "--workers", 2, "--out", "out", "--json"]
    status, shown, err = command(*words)
    assert status == 1 and bytes_in(Path("out")) == expected
    check_failures(json.loads(shown), err)
    assert no_remains(Path("out"))


class DaskProcesses:
    """A scheduler and workers as one starts them from a shell, here on loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.processes: list[subprocess.Popen] = []
        self.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", self.file, "--no-dashboard")
        wait_for(self.file.exists, "a scheduler file")

    def start(self, *arguments: object, **options) -> subprocess.Popen:
        command = [DASK, *map(str, arguments)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        start = subprocess.Popen if "env" in options else Forked
        self.processes.append(start(command, cwd=self.folder, **quiet, **options))
        return self.processes[-1]

    def start_worker(self, **options) -> subprocess.Popen:
        where = ("--scheduler-file", self.file, "--host", "127.0.0.1", "--local-directory", self.folder)
        return self.start("worker", *where, "--nthreads", "2", "--no-nanny", "--no-dashboard", **options)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def dask(tmp_path_factory) -> Iterator[DaskProcesses]:
    """With two workers, started in a folder of their own."""
    cluster = DaskProcesses(tmp_path_factory.mktemp("dask"))
    try:
        for _ in range(2):
            cluster.start_worker()
        with Client(scheduler_file=str(cluster.file), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=PATIENCE_S)
        yield cluster
    finally:
        cluster.close()


def sweep_on(dask: DaskProcesses, scenario: Path, *words: object, out: str = "out") -> list[object]:
    return ["sweep", scenario, *words, "--engine", "dask", "--scheduler", dask.file, "--out", out, "--json"]


def test_the_workers_of_a_scheduler_end_in_the_bytes_of_airprune_run(command, scenario, dask, expected):
    status, shown, err = command(*sweep_on(dask, scenario, *DEADLINES))
    assert status == 1 and bytes_in(Path("out")) == expected
    check_failures(json.loads(shown), err)
    assert no_remains(Path("out"))


def test_folders_come_back_from_workers_that_do_not_share_the_file_system(tmp_path, command, scenario, dask, expected):
    """/proc/self/cwd is another folder in each process: the driver's `out` is not the workers'."""
    half_done = ap.run(Sweep.of(ap.Scenario.load(scenario), DEADLINES).runs[0].scenario, out=f"out/{NAMES[0]}")
    next(half_done)
    half_done.close()
    environment = tmp_path / "out" / NAMES[0] / "environment.json"
    environment.write_text('{"only": "here"}')
    status, shown, err = command(*sweep_on(dask, scenario, *DEADLINES, out="/proc/self/cwd/out"))
    assert status == 1 and bytes_in(tmp_path / "out") == expected
    check_failures(json.loads(shown), err)
    assert environment.read_text() == '{"only": "here"}'  # it went there and back: the run was continued
    assert no_remains(tmp_path / "out") and not (dask.folder / "out").exists()


def test_a_network_table_travels_with_its_run(tmp_path, command, scenario, dask):
    table = tmp_path / "network.csv"
    table.write_text("device,edge,distance_m\n" + "".join(f"{n},{n % 2},{120 + n}\n" for n in range(4)))
    place = "/proc/self/cwd"
    status, _, err = command(*sweep_on(dask, scenario, f"network.table={place}/network.csv", out=f"{place}/out"))
    assert status == 0, err
    assert RunFolder(tmp_path / "out/tiny-seed0").scenario().network.table == f"{place}/network.csv"


def test_workers_whose_kernel_is_another_are_left_out(command, scenario, dask, monkeypatch):
    """The driver's is: on one machine all workers have the same."""
    monkeypatch.setattr("airprune.studies.campaign.driver.own_kernel", lambda: "another")
    monkeypatch.setattr("airprune.engines.cluster.engine._ONLY_REFUSED_S", 0.5)
    status, _, err = command(*sweep_on(dask, scenario, "seed=0-1"))
    assert status == 1 and err.count("\n") == 1
    assert err.startswith("error: No worker of the cluster can take part: ")
    assert err.count("cannot take part: its kernel is ") == 2 and "but this sweep's is another" in err


def test_a_sweep_killed_with_runs_on_a_cluster_stops_them_and_continues(tmp_path, command, long, long_bytes, dask):
    folder = RunFolder(tmp_path / "out/tiny-seed0")
    process = start_airprune(*sweep_on(dask, long))
    wait_for(lambda: len(folder.records()) > 2, "some records")
    kill(process)
    wait_for(lambda: not folder.is_running, "the worker to leave the folder")
    assert not folder.is_finished
    status, _, err = command(*sweep_on(dask, long))
    assert status == 0, err
    assert final_bytes(folder.path) == long_bytes


def test_a_run_waits_until_its_folder_is_free(tmp_path, command, scenario, dask):
    """As when its former worker has not noticed yet that nobody waits for it."""
    command(*sweep_on(dask, scenario, "seed=0-1", out="before"))  # so that workers, once started up, are quick
    is_held = threading.Event()

    def hold() -> None:
        with locked(tmp_path / "out/tiny-seed0"):
            is_held.set()
            wait_for(lambda: bool(list(tmp_path.glob("out/.shared-*"))), "the driver to be connected")
            time.sleep(1.0)

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait(PATIENCE_S)
    status, _, err = command(*sweep_on(dask, scenario))
    holder.join()
    assert status == 0, err


def test_a_killed_worker_of_a_cluster_loses_nothing(tmp_path, long, long_bytes, dask):
    sweep = Sweep.of(ap.Scenario.load(long), ["engine.name=dask", f"engine.scheduler={dask.file}"])
    folder = SweepFolder(sweep, tmp_path / "out")
    run_folder = folder.run_folder(sweep.runs[0])
    killed: list[tuple[int, bool]] = []

    def writes(pid: int) -> bool:
        links = Path(f"/proc/{pid}/fd").iterdir()
        return any(link.readlink() == run_folder.path / ".lock" for link in links)

    def kill_the_worker() -> None:
        wait_for(lambda: len(run_folder.records()) > 2, "some records")
        (worker,) = (process for process in dask.processes if writes(process.pid))
        worker.kill()
        killed.append((worker.wait(), run_folder.is_finished))

    killer = threading.Thread(target=kill_the_worker)
    with folder.locked():
        killer.start()
        outcomes = list(folder.outcomes(sweep.runs))
    killer.join()
    assert killed == [(-signal.SIGKILL, False)]
    assert [outcome.trouble for outcome in outcomes] == [None]
    assert final_bytes(run_folder.path) == long_bytes


def test_a_worker_with_other_versions_is_named_and_left_out(tmp_path, command, scenario, monkeypatch, caplog):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as metadata\n"
        "version = metadata.version\n"
        "metadata.version = lambda name: '0.0.1' if name == 'torch' else version(name)\n"
    )
    monkeypatch.setattr("airprune.engines.cluster.engine._ONLY_REFUSED_S", 0.5)
    dask = DaskProcesses(tmp_path)
    try:
        dask.start_worker(env={**os.environ, "PYTHONPATH": str(tmp_path)})
        status, out, err = command(*sweep_on(dask, scenario))
    finally:
        dask.close()
    assert status == 1 and out == ""
    why = re.escape(f"has torch 0.0.1, but this run has torch {importlib.metadata.version('torch')}")
    assert re.fullmatch(rf"error: No worker of the cluster can take part: tcp://127\.0\.0\.1:\d+ {why}\.\n", err)
    (left_out,) = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(rf"Worker tcp://127\.0\.0\.1:\d+ is excluded: it {why}\.", left_out)


def test_a_lost_scheduler_is_one_sentence_and_status_1(tmp_path, command, long):
    dask = DaskProcesses(tmp_path)
    dask.start_worker()

    def lose_it() -> None:
        wait_for(lambda: bool(RunFolder(tmp_path / "out/tiny-seed0").records()), "a run to be under way")
        dask.close()

    loser = threading.Thread(target=lose_it)
    loser.start()
    status, out, err = command(*sweep_on(dask, long))
    loser.join()
    assert status == 1 and out == ""
    assert err == (
        f"error: The Dask scheduler ({dask.file}) cannot be reached any more. Start it again and give the same "
        "command: it goes on from what is done.\n"
    )
