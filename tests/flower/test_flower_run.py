"""Runs by `airprune flower`, in an environment with Flower: beside our own methods, by hand, killed and resumed."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from flower.environments import VERSIONS, environment, run_in, variables

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
NUMPY, LEGACY = HERE / "apps/mean_numpy", HERE / "apps/mean_legacy"
VERSION = VERSIONS[1]


def flower(app, out, *words, version=VERSION):
    """Runs an app with times that do not depend on the machine; returns its records."""
    words = ["-m", "airprune", "flower", app, "--compute", "paper", "--engine", "serial", "--out", out, *words]
    done = run_in(version, *words, cwd=out.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    return records_in(out)


def records_in(out):
    return [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]


def final_model(out):
    return load_file(out / "final.safetensors")


def rounds_of(records):
    return [record for record in records if record["kind"] == "global"]


@pytest.mark.parametrize("words", [[], ["edges"]], ids=["fedavg", "hierfavg"])
def test_an_app_equals_our_own_method_in_time_bits_joules_and_weights(words, tmp_path):
    done = run_in(VERSION, HERE / "compare_with_fedavg.py", *words, cwd=tmp_path)
    found = json.loads(done.stdout)
    apart = found["apart"]
    assert found["compute_from"] == ["counted"] and found["rounds"] == (2 if words else 3)
    assert found["moved"] > 0.01  # there is something to compare
    assert apart.pop("weights") < 1e-6 and apart.pop("loss") < 1e-6  # float32, sums in another order
    assert max(apart.values()) < 1e-9, apart


def test_a_killed_run_ends_in_the_bytes_of_one_that_was_not(tmp_path):
    words = ["--run-config", "num-server-rounds=12"]
    flower(NUMPY, tmp_path / "whole", *words)
    command = [environment(VERSION), "-m", "airprune", "flower", NUMPY, "--compute", "paper", "--engine", "serial"]
    killed = 0
    for num_records in (4, 17):
        started = subprocess.Popen(
            [*command, "--out", tmp_path / "killed", "--resume", *words],
            env=os.environ | variables(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        file = tmp_path / "killed/records.jsonl"
        while started.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") >= num_records):
            time.sleep(0.001)
        if started.poll() is None:
            os.kill(started.pid, signal.SIGKILL)
            killed += 1
        started.wait()
    assert killed == 2 and not (tmp_path / "killed/final.safetensors").exists()
    flower(NUMPY, tmp_path / "killed", "--resume", *words)
    for name in ("records.jsonl", "final.safetensors", "checkpoint/state.safetensors", "scenario.toml"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert not (tmp_path / "killed/replies").exists()


def test_worker_processes_change_nothing(tmp_path):
    records = flower(NUMPY, tmp_path / "serial", "--devices", "4")
    assert {device for record in records for device in record.get("device", ())} == {0, 1, 2, 3}
    flower(NUMPY, tmp_path / "processes", "--devices", "4", "--engine", "processes", "--workers", "2")
    for name in ("records.jsonl", "final.safetensors"):
        assert (tmp_path / "processes" / name).read_bytes() == (tmp_path / "serial" / name).read_bytes(), name


def test_a_legacy_app_moves_half_way_to_the_mean_in_each_round(tmp_path):
    records = flower(LEGACY, tmp_path / "run")
    assert final_model(tmp_path / "run")["0"] == pytest.approx(np.full((8, 5), 2.5 * (1 - 0.5**3)), rel=1e-6)
    assert [record["message"] for record in records if "message" in record] == ["query", *["train", "evaluate"] * 3]
    assert rounds_of(records)[-1]["uploaded_bits"] == (1 + 3 * 6) * 8 * 5 * 32  # its first model is a client's


def test_a_legacy_strategy_at_every_edge_gives_the_mean_of_the_edges(tmp_path):
    records = flower(LEGACY, tmp_path / "run", "--edges", "2", "rounds.edge_rounds=3")
    trainings = [record for record in records if record.get("message") == "train"]
    assert [record["edge_id"] for record in trainings] == [[0, 1]] * 3 and len(rounds_of(records)) == 1
    # Edges move to 1 and 4, the means of their own clients, and the cloud takes the middle.
    assert final_model(tmp_path / "run")["0"] == pytest.approx(np.full((8, 5), 2.5 * (1 - 0.5**3)), rel=1e-6)


def test_a_server_goes_on_without_replies_that_miss_the_deadline(tmp_path):
    rates = [1.0, 1.0, 1.0, 1.0, 1.0, 0.001]
    rows = [f"{device},cell,{rate}" for device, rate in enumerate(rates)]
    (tmp_path / "fleet.csv").write_text("\n".join(["device,edge,rate_mbps", *rows]) + "\n")
    records = flower(LEGACY, tmp_path / "run", "--fleet", tmp_path / "fleet.csv", "plan.deadline_s=0.1")
    trainings = [record for record in records if record.get("message") == "train"]
    assert [record["fate"] for record in trainings] == [["ok"] * 5 + ["late"]] * 3
    assert [record["edge_latency_s"][0] for record in trainings] == pytest.approx([0.1] * 3, rel=1e-8)
    mean = np.mean(range(5))  # of the five that arrive
    assert final_model(tmp_path / "run")["0"] == pytest.approx(np.full((8, 5), mean * (1 - 0.5**3)), rel=1e-6)


def test_a_plan_reaches_the_clients_and_what_they_say_to_have_sent_is_charged(tmp_path):
    words = ["plan.scheme=optimal", "plan.deadline_s=0.0012", "radio.bandwidth_hz=2e5"]
    for record in flower(NUMPY, tmp_path / "run", *words):
        if record.get("message") == "train":
            assert 0 < sum(record["kept_weights"]) < 40 * len(record["device"])
            assert record["uploaded_bits"] == 32 * sum(record["kept_weights"])  # its model has 40 weights
            assert set(record["fate"]) == {"ok"}


def test_variants_are_compared_in_one_table_and_report(tmp_path):
    words = ["--compare", "--edges", "2", "plan.deadline_s=10", "--compute", "paper", "--engine", "serial"]
    done = run_in(VERSION, "-m", "airprune", "flower", NUMPY, *words, "--out", tmp_path / "all", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    names = ["plain", "edges", "deadline", "edges+deadline"]
    assert [
        line.split()[0] for line in done.stdout.splitlines() if line.split()[:1] and line.split()[0] in names
    ] == names
    page = (tmp_path / "all/report.html").read_text()
    assert all(name in page for name in names) and "Clock: of a Flower app, paper." in page


OWN_LOOP = """
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    model = np.zeros((8, 5), dtype=np.float32)
    for _ in range(2):
        content = RecordDict({"arrays": ArrayRecord([model]), "config": ConfigRecord()})
        names = grid.push_messages([Message(content, node, "train") for node in grid.get_node_ids()])
        replies = grid.pull_messages(names)
        model = np.mean([reply.content["arrays"].to_numpy_ndarrays()[0] for reply in replies], axis=0)
"""


def test_a_server_with_a_loop_of_its_own_runs_without_edges(tmp_path):
    app = shutil.copytree(NUMPY, tmp_path / "app")
    (app / "mean_app/server_app.py").write_text(OWN_LOOP)
    records = flower(app, tmp_path / "run")
    assert [record["participants"] for record in rounds_of(records)] == [6, 6]
    # The last model that was sent: half way from 0 to the mean of 0, …, 5, up to noise of 0.01 / √6.
    assert final_model(tmp_path / "run")["0"] == pytest.approx(np.full((8, 5), 1.25), abs=6 * 0.01 / np.sqrt(6))
    refused = run_in(VERSION, "-m", "airprune", "flower", app, "--edges", "2", "--out", "other", cwd=tmp_path)
    assert refused.returncode == 2 and "The app's server has a loop of its own" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_what_cannot_run_is_said_in_one_sentence(tmp_path):
    flower(NUMPY, tmp_path / "run")
    broken = tmp_path / "broken"
    broken.mkdir()
    project = (NUMPY / "pyproject.toml").read_text()
    (broken / "pyproject.toml").write_text(project)
    for app, words, said in (
        (NUMPY, ["--devices", "1"], "min_available_nodes must be at most the number of clients, 1, got 2"),
        (NUMPY, ["--out", tmp_path / "run", "--resume", "--run-config", "lr=0.1"], "was run with another run config"),
        (NUMPY, ["topology.name=lan"], "Scenario.topology.name must be one of flat, hierarchical"),
        (NUMPY, ["plan.scheme=work"], "Scenario.plan.scheme must be a scheme without local steps"),
        (broken, [], "The app's ServerApp mean_app.server_app:app cannot be imported"),
    ):
        done = run_in(VERSION, "-m", "airprune", "flower", app, "--engine", "serial", *words, cwd=tmp_path)
        assert done.returncode in (1, 2) and said in done.stderr, (words, done.stderr)
