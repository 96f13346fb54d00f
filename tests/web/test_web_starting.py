"""Starting, stopping, resuming runs from the page: same rules as the command line, one at a time, none left over."""

import os
import signal
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

import airprune as ap
from airprune.cli import main
from airprune.runs.layout import RunFolder
from airprune.scenario import presets
from airprune.web.starting.form import form
from support.processes import is_alive, start_airprune, wait_for
from support.tiny import TINY_TOML, final_bytes
from support.web_runs import HOSTILE, make_run, stopped_run, tiny

pytest_plugins = ["support.browser"]

ENDLESS = TINY_TOML + '[engine]\nname = "serial"\n[rounds]\nglobal_rounds = 100000\n'
SHORT = TINY_TOML + '[engine]\nname = "serial"\n[rounds]\nglobal_rounds = 2\n'


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def runner(serve, root):
    return serve(runs_dir=root, allow_run=True)


def post(server, path: str, body: object, status: int = 200):
    answer = server.client.post(path, json=body, headers=server.with_token)
    assert answer.status_code == status, answer.text
    return answer.json()


def refused(server, path: str, body: object, status: int) -> str:
    return post(server, path, body, status)["error"]


def work(server) -> dict:
    return server.client.get("/api/work").json()


def wait_for_end(server) -> dict:
    wait_for(lambda: work(server)["state"] == "ended", "the run should end")
    return work(server)


def wait_for_records(folder: Path, count: int) -> None:
    wait_for(lambda: len(RunFolder(folder).records()) >= count, "records should come")


# Who may


def test_nothing_starts_without_allow_run(serve, tmp_path):
    stopped_run(tmp_path / "stopped", 1)
    server = serve(runs_dir=tmp_path)
    for path, body in (
        ("/api/work/start", {"toml": SHORT, "name": "x"}),
        ("/api/work/resume", {"run": "stopped"}),
        ("/api/work/stop", {}),
    ):
        assert "--allow-run" in refused(server, path, body, 403)
    assert [path.name for path in tmp_path.iterdir()] == ["stopped"]


@pytest.mark.parametrize("path", ["/api/work/start", "/api/work/resume", "/api/work/stop", "/api/scenario/check"])
def test_nothing_starts_without_the_token(runner, path):
    for headers in ({}, {"X-Airprune-Token": "wrong"}, {"Origin": "http://evil.example"}):
        answer = runner.client.post(path, json={"toml": SHORT, "name": "x"}, headers=headers)
        assert answer.status_code == 403 and "error" in answer.json()


# What is checked

WRONG = [
    {"overrides": {"plan.deadline_s": "-1"}},
    {"overrides": {"plan.deadline_s": "soon"}},
    {"overrides": {"plan.deadlin_s": "1"}},
    {"overrides": {"plan.scheme": "optimall"}},
    {"overrides": {"data.name": "mnits"}},
    {"overrides": {"rounds.edge_rounds": "[1, 2, 3, 4, 5, 6]"}},
    {"overrides": {"seed": "1.5"}},
    {"preset": "papr"},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_the_page_says_what_the_command_line_says(runner, capsys, tmp_path, wrong):
    body = {"preset": "smoke", **wrong}
    words = [f"{key}={value}" for key, value in body.get("overrides", {}).items()]
    assert main(["run", body["preset"], *words, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.strip() == f"error: {refused(runner, '/api/scenario/check', body, 422)}"


def test_toml_is_checked_by_the_same_rules(runner):
    assert "line 2" in refused(runner, "/api/scenario/check", {"toml": "seed = 1\n]["}, 422)
    assert "Scenario.seed" in refused(runner, "/api/scenario/check", {"toml": "seed = -1"}, 422)
    refused(runner, "/api/scenario/check", {"toml": "#" * (2**20 + 1)}, 413)
    for body in ({}, {"preset": "smoke", "toml": ""}):
        assert "preset or toml" in refused(runner, "/api/scenario/check", body, 422)
    assert post(runner, "/api/scenario/check", {"toml": 'base = "smoke"'})["folder"] == "custom-seed0"


def test_a_valid_scenario_comes_back_whole_with_its_command(runner, root):
    body = {"preset": "smoke", "overrides": {"plan.scheme": "min-max", "name": "two words"}}
    answer = post(runner, "/api/scenario/check", body)
    assert ap.Scenario.from_text(answer["toml"]) == ap.Scenario.preset("smoke").with_values(
        {"plan.scheme": "min-max", "name": "two words"}
    )
    assert answer["differs"] == [["plan.scheme", "min-max", "optimal"]]
    assert answer["folder"] == "two-words-seed0"
    assert answer["command"] == f"airprune run smoke plan.scheme=min-max 'name=two words' --out {root}/two-words-seed0"


def test_the_form_has_every_field_and_its_texts_give_back_the_presets():
    fields = {field["key"]: field for section in form()["sections"] for field in section["fields"]}
    for name in presets():
        values = form()["presets"][name]["values"]
        needed = {
            key
            for key, field in fields.items()
            if not field["needs"] or any(values[choice] == field["needs"]["name"] for choice in field["needs"]["keys"])
        }
        assert set(values) == needed  # options of a component only while it is chosen
        words = [f"{key}={text}" for key, text in values.items()]
        assert ap.Scenario().with_overrides(words) == ap.Scenario.preset(name)
    assert all(field["about"] for section in form()["sections"] for field in section["fields"])


UNFIT = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "/abs",
    "a\\b",
    ".hidden",
    "-x",
    "x.",
    "a b",
    "nul\0",
    "x" * 81,
    "ä",
    "con",
    HOSTILE,
]


@pytest.mark.parametrize("name", UNFIT)
def test_only_plain_names_make_new_folders(runner, root, name):
    before = sorted(root.rglob("*"))
    assert "name of a new run" in refused(runner, "/api/work/start", {"toml": SHORT, "name": name}, 422)
    assert sorted(root.rglob("*")) == before


# What is done


def test_one_at_a_time_stopped_cleanly_and_resumed_to_the_bytes_of_the_command_line(runner, root, tmp_path):
    rounds = 12
    toml = SHORT.replace("global_rounds = 2", f"global_rounds = {rounds}")
    assert post(runner, "/api/work/start", {"toml": toml, "name": "long"})["state"] == "running"
    wait_for_records(root / "long", 4)
    assert "One run at a time: long" in refused(runner, "/api/work/start", {"toml": SHORT, "name": "other"}, 409)
    assert not (root / "other").exists()
    assert "long is running" in refused(runner, "/api/work/resume", {"run": "long"}, 409)
    assert post(runner, "/api/work/stop", {})["state"] in ("stopping", "ended")
    ended = wait_for_end(runner)
    assert (ended["exit_status"], ended["said"]) == (130, "")
    assert not RunFolder(root / "long").is_finished and len(RunFolder(root / "long").records()) < rounds * 3
    assert not (root / "long" / ".scratch").exists()

    assert post(runner, "/api/work/resume", {"run": "long"})["state"] == "running"
    ended = wait_for_end(runner)
    assert (ended["name"], ended["exit_status"], ended["said"]) == ("long", 0, "")
    assert final_bytes(root / "long") == final_bytes(make_run(tmp_path / "direct", rounds__global_rounds=rounds))
    assert (root / "long" / "report.html").exists()
    assert "is there already" in refused(runner, "/api/work/start", {"toml": SHORT, "name": "long"}, 409)
    assert "long is finished" in refused(runner, "/api/work/resume", {"run": "long"}, 409)
    assert "No run is at work" in refused(runner, "/api/work/stop", {}, 409)


def test_a_run_that_fails_shows_its_last_words_and_leaves_no_folder(runner, root):
    toml = TINY_TOML + '[network]\ntable = "/not/there.csv"\n'
    post(runner, "/api/work/start", {"toml": toml, "name": "fails"})
    ended = wait_for_end(runner)
    assert ended["exit_status"] == 2 and "/not/there.csv" in ended["said"]
    assert not (root / "fails").exists()


def test_a_run_killed_while_it_looks_for_its_cluster_leaves_no_folder(runner, root):
    toml = TINY_TOML + '[engine]\nname = "dask"\nscheduler = "tcp://127.0.0.1:1"\n'
    post(runner, "/api/work/start", {"toml": toml, "name": "killed"})
    wait_for((root / "killed" / ".scratch").exists, "it should look for the scheduler")
    (child,) = (p for p in psutil.Process().children() if "airprune.web.starting.child" in p.cmdline())
    child.send_signal(signal.SIGKILL)
    assert wait_for_end(runner)["exit_status"] == -signal.SIGKILL
    assert not (root / "killed").exists()


def test_a_folder_that_another_process_writes_cannot_be_resumed(runner, root):
    records = ap.run(tiny(), out=root / "elsewhere")
    next(records)
    assert "elsewhere is running" in refused(runner, "/api/work/resume", {"run": "elsewhere"}, 409)
    records.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_run_ends_with_its_server_and_can_be_resumed(tmp_path, how):
    server = start_airprune("web", tmp_path / "runs", "--port", "0", "--allow-run")
    try:
        assert server.stdout is not None
        address = httpx.URL(server.stdout.readline().strip())
        base, token = f"http://{address.netloc.decode()}", address.params["token"]
        body = {"toml": ENDLESS, "name": "orphan"}
        answer = httpx.post(f"{base}/api/work/start", json=body, headers={"X-Airprune-Token": token}, timeout=60)
        assert answer.status_code == 200
        folder = RunFolder(tmp_path / "runs" / "orphan")
        wait_for_records(folder.path, 2)
        assert folder.is_running
        os.kill(server.pid, how)
        wait_for(lambda: not folder.is_running, "the run should end with its server", patience_s=15)
        wait_for(lambda: not is_alive(server.pid), "the server should end", patience_s=15)
    finally:
        server.kill()
        _, errors = server.communicate()
    assert "Traceback" not in errors
    before = folder.records_file.read_bytes()
    records = ap.run(folder.scenario(), out=folder.path, resume=True)
    next(records), next(records)  # the first may have been written already, but not yet counted as done
    records.close()
    after = folder.records_file.read_bytes()
    assert after.startswith(before) and len(after) > len(before)


# From the planner


def test_the_planned_devices_become_the_network_of_a_run(serve, tmp_path):
    server = serve(runs_dir=tmp_path, allow_run=True)
    query = {"deadline_ms": 40, "scheme": "min-max", "num_edges": 2, "devices_per_edge": 3, "moved": "0.1_50_60"}
    assert server.client.post("/api/planner/table", params=query, json={}).status_code == 403
    answer = server.client.post("/api/planner/table", params=query, json={}, headers=server.with_token)
    overrides = answer.json()["overrides"]
    scenario = ap.Scenario.preset("smoke").with_overrides(f"{key}={value}" for key, value in overrides.items())
    assert (scenario.plan.deadline_s, scenario.plan.scheme) == (0.04, "min-max")
    network = scenario.build_network()
    planned = server.client.get("/api/plan", params=query).json()["devices"]
    assert list(network.device_names) == planned["name"]
    np.testing.assert_allclose(10 * np.log10(network.link_snr), planned["snr_db"], atol=1e-3)
    wanted = {"preset": "smoke", "overrides": overrides}
    assert server.client.post("/api/scenario/check", json=wanted, headers=server.with_token).status_code == 200


def test_a_server_that_starts_no_runs_writes_no_table(serve, tmp_path):
    server = serve(runs_dir=tmp_path)
    answer = server.client.post("/api/planner/table", json={}, headers=server.with_token)
    assert answer.status_code == 403 and "--allow-run" in answer.json()["error"]
    assert list(tmp_path.iterdir()) == []
