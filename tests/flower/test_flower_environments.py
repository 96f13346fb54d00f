"""Eight apps, the client mod and strategies on several versions of Flower, each in an environment of its own."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from flower.environments import VERSIONS, environment, run_in

HERE = Path(__file__).parent
APPS = HERE / "apps"
ROUNDS = {"client_state": 4, "numpy_regression": 4, "round_config": 4}


def pytest_in(version: str, folder: Path, cwd: Path) -> subprocess.CompletedProcess:
    options = ["-q", "--noconftest", "-c", "/dev/null", "-p", "no:cacheprovider", "-o", "python_files=check_*.py"]
    paths = ["-o", f"pythonpath={HERE}", "--rootdir", folder]
    return run_in(version, "-m", "pytest", *options, *paths, folder, cwd=cwd, timeout_s=1200)


def of_numpy_regression() -> float:
    """Four rounds of the app, written again: the distance to the solution."""
    true, weights = np.array([1.0, -2.0, 0.5]), np.zeros(3)
    for _ in range(4):
        moved = np.zeros(3)
        for client in range(5):
            x = np.random.default_rng(client).normal(size=(20 + client, 3))
            moved += (20 + client) * (weights - 0.3 * x.T @ (x @ (weights - true)) / (20 + client))
        weights = moved / sum(range(20, 25))
    return float(np.linalg.norm(weights - true))


# What the last record of each app must have; hand values but where another computation is at hand.
EXPECTED = {
    "torch_quickstart": lambda last: last["test_accuracy"] > 0.7,
    "numpy_regression": lambda last: last["test_loss"] == pytest.approx(of_numpy_regression(), rel=1e-9),
    "sklearn_logistic": lambda last: last["test_accuracy"] > 0.8,
    # The median of five is client 3's: 10.03 (1 − 2⁻³), of which 10 is the distance's origin.
    "custom_strategy": lambda last: last["test_loss"] == pytest.approx(10.0 - 10.03 * (1 - 0.125), rel=1e-9),
    "client_state": lambda last: last["test_loss"] == 4.0,  # rounds that each client counted
    "client_evaluation": lambda last: last["test_accuracy"] > 0.85,
    "legacy_numpyclient": lambda last: last["test_loss"] < 0.1,
    "round_config": lambda last: last["test_loss"] == pytest.approx(0.2 * 0.6 * 0.8 * 0.9, rel=1e-9),
}
# Clients that train in a round, and bits of the app's arrays.
TRAINING = {
    "torch_quickstart": (6, 32 * (8 * 16 + 16 + 16 * 2 + 2)),
    "numpy_regression": (5, 64 * 3),
    "sklearn_logistic": (4, 64 * (12 + 3)),
    "custom_strategy": (5, 64 * 6),
    "client_state": (3, 32 * 16),
    "client_evaluation": (4, 32 * (12 + 2)),
    "legacy_numpyclient": (4, 32 * 2),
    "round_config": (3, 64 * 9),
}


def test_there_are_eight_apps_of_different_kinds():
    ours = {path.name for path in APPS.iterdir() if (path / "pyproject.toml").exists()}
    assert EXPECTED.keys() == TRAINING.keys() and len(EXPECTED) == 8 and EXPECTED.keys() <= ours


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_eight_unmodified_apps_run_on_the_network(version, tmp_path):
    for name in EXPECTED:  # elsewhere than their sources, as users have theirs
        shutil.copytree(APPS / name, tmp_path / "apps" / name)
    folders = [tmp_path / "apps" / name for name in EXPECTED]
    done = run_in(version, HERE / "with_flower/run_apps.py", tmp_path / "runs", *folders, cwd=tmp_path, timeout_s=3000)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, holds in EXPECTED.items():
        records = [json.loads(line) for line in (tmp_path / "runs" / name / "records.jsonl").read_text().splitlines()]
        rounds = [record for record in records if record["kind"] == "global"]
        assert len(rounds) == ROUNDS.get(name, 3), name
        assert holds(rounds[-1]), (name, rounds[-1])
        clients, bits = TRAINING[name]
        trainings = [record for record in records if record["kind"] == "edge" and record["message"] == "train"]
        assert [len(record["device"]) for record in trainings] == [clients] * len(rounds), name
        assert {record["uploaded_bits"] for record in trainings} == {float(clients * bits)}, name
        assert all(record["edge_latency_s"][0] > 0.0 and record["energy_j"] > 0.0 for record in trainings), name


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_clients_keep_to_their_budgets_and_methods_are_strategies(version, tmp_path):
    done = pytest_in(version, HERE / "with_flower", tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS[:2])
def test_clients_that_keep_to_their_plans_meet_the_deadline_and_are_charged_what_they_send(version, tmp_path):
    plan = ["plan.scheme=optimal", "plan.deadline_s=2e-4", "plan.max_pruning_ratio=0.9", "plan.cycles_per_weight=1e-6"]
    words = ["flower", APPS / "budgeted", "--engine", "serial", "--compute", "paper", "--out", tmp_path / "run", *plan]
    done = run_in(version, "-m", "airprune", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "run/records.jsonl").read_text().splitlines()]
    trainings = [record for record in records if record["kind"] == "edge"]
    for record in trainings:
        sent = [kept for kept, fate in zip(record["kept_weights"], record["fate"], strict=True) if fate == "ok"]
        assert set(record["fate"]) <= {"ok", "blocked"} and len(sent) >= 4 and max(sent) < 40 * 30
        assert record["uploaded_bits"] == 32 * (sum(sent) + 40 * len(sent))  # weights, and a bias of each row
        assert record["edge_latency_s"][0] <= 2e-4 * (1 + 1e-9)
    first = next(record for record in records if record["kind"] == "global")
    assert first["test_moved"] == pytest.approx(max(trainings[0]["kept_weights"]) / (40 * 30))  # masks are nested
    assert first["test_loss"] == pytest.approx(1.0)  # ten steps of 0.1


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_extras_flower_and_deploy_install_together(version, tmp_path):
    checked = subprocess.run([environment(version), "-m", "pip", "check"], capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked.stdout
    protocol = (
        "from airprune.deployment.protocol.airprune_pb2 import Beat; print(Beat(number=7).SerializeToString().hex())"
    )
    done = run_in(version, "-W", "error", "-c", protocol, cwd=tmp_path)
    assert done.stdout.strip() == "0807", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_commands_work_with_the_typer_that_flower_takes(version, tmp_path):
    (tmp_path / "fleet.csv").write_text("device,edge,snr_db\na,0,30\nb,0,20\n")
    plan = run_in(version, "-m", "airprune", "plan", "fleet.csv", "--deadline-ms", "2000", "--json", cwd=tmp_path)
    assert plan.returncode == 0 and len(json.loads(plan.stdout)["devices"]) == 2, plan.stderr
    for words in (["run", "nosuch"], ["plan", "fleet.csv", "--nosuch"], ["plan"]):
        refused = run_in(version, "-m", "airprune", *words, cwd=tmp_path)
        assert refused.returncode == 2 and refused.stderr.startswith("error: "), words
        assert refused.stderr.count("\n") <= 3 and "Traceback" not in refused.stderr, refused.stderr
    assert "plan.deadline_s" in run_in(version, "-m", "airprune", "run", "--help", cwd=tmp_path).stdout


@pytest.mark.slow
def test_an_app_that_flwr_new_makes_runs(tmp_path):
    """Flower 1.24 has templates of its own; later ones fetch them. The others of 1.24 fetch their data."""
    made = run_in(
        "1.24.0", "-m", "flwr.cli.app", "new", "made", "--framework", "numpy", "--username", "me", cwd=tmp_path
    )
    assert (tmp_path / "made/pyproject.toml").is_file(), made.stdout + made.stderr
    words = ["flower", tmp_path / "made", "--devices", "4", "--out", tmp_path / "run", "--engine", "serial"]
    done = run_in("1.24.0", "-m", "airprune", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "run/records.jsonl").read_text().splitlines()]
    assert [record["global_round"] for record in records if record["kind"] == "global"] == [1, 2, 3]


def test_the_command_that_installs_flower_takes_no_pins_but_that_of_torch():
    from airprune.extras import install_command

    assert "constraints.txt" not in install_command("flower") and "torch==" in install_command("flower")
    assert "constraints.txt" in install_command("deploy")
