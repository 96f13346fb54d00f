"""A fleet that stays: jobs one after another on nodes that nobody touches; real processes, real TLS."""

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest

import airprune as ap
from airprune.deployment.fleet.registry import Registry
from airprune.deployment.fleet.service import registry_of
from airprune.deployment.identity import load_members
from airprune.deployment.identity.peers import expiry_of, serial_of
from airprune.errors import UsageError
from airprune.runs.layout import RunFolder
from airprune.runs.measured import read_measured
from support.federation import Processes
from support.lab import free_ports
from support.tiny import final_bytes

pytest_plugins = ["support.browser"]

SMALL = (
    "model.name=mlp",
    "data.train_samples=120",
    "data.test_samples=40",
    "radio.bandwidth_hz=2e6",
    "rounds.global_rounds=1",
    "rounds.edge_rounds=1",
    "engine.name=serial",
)
PATIENT = ("--plan-with", "network", "--grace", "120", "--patience", "120")


def simulated(out: Path, *changes: str) -> tuple[bytes, bytes]:
    for _ in ap.run(ap.Scenario.preset("deployed").with_overrides([*SMALL, *changes]), out=out):
        pass
    return final_bytes(out)


@pytest.fixture(scope="module")
def site(serve, fleet):
    """`airprune web` of the cloud's kit."""
    return serve(runs_dir=fleet.kits / "cloud")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Two edges with one device each, that wait for jobs."""
    with Processes(tmp_path_factory.mktemp("fleet"), num_edges=2, devices_per_edge=1) as made:
        made.start_all()
        made.serve("--metrics-port", "0")
        yield made


def submit(fleet: Processes, *changes: str) -> int:
    return int(fleet.ask("submit", fleet.kits / "cloud", "deployed", *SMALL, *changes, *PATIENT))


def metrics_of(fleet: Processes) -> dict[tuple[str, str], float]:
    """(name, value of its label) → number, as Prometheus reads it."""
    port = re.findall(r"Metrics at http://127.0.0.1:(\d+)/metrics", fleet.log("cloud"))[-1]
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    lines = re.findall(r'^airprune_(\w+?)(?:\{\w+="(\w+)"\})? (\S+)$', text, flags=re.MULTILINE)
    return {(name, label): float(value) for name, label, value in lines}


def counts_of(fleet: Processes, site) -> dict[str, object]:
    """The counts of the page, which are those of `deploy status` and of `/metrics`."""
    shown = site.client.get("/api/deployment", params={"of": "state"}).json()["counts"]
    assert json.loads(fleet.ask("status", fleet.kits / "cloud", "--json"))["counts"] == shown
    served = metrics_of(fleet)
    families = {
        "jobs": "jobs",
        "nodes": "nodes",
        "nodes_online": "online",
        "uploads_total": "uploads",
        "alerts": "alerts",
    }
    for family, name in families.items():
        found = {label: number for (of, label), number in served.items() if of == family}
        assert {label: number for label, number in found.items() if number} == {
            k: n for k, n in shown[name].items() if n
        }
    for metric, name in (
        ("rounds_total", "edge_rounds"),
        ("upload_bytes_total", "upload_bytes"),
        ("model_holders", "holders"),
    ):
        assert served[metric, ""] == shown[name]
    return shown


def test_before_the_first_job_metrics_status_and_page_show_the_same_nodes(fleet, site):
    fleet.wait_for(lambda: (found := fleet.status()) and found.online("device") == 2, "all wait")
    shown = counts_of(fleet, site)
    assert shown["nodes"] == shown["online"] == {"edge": 2, "device": 2}
    assert shown["uploads"] == dict.fromkeys(("ok", "late", "dropped", "failed", "refused"), 0)
    assert site.client.get("/deployment").status_code == 200
    answer = site.client.get("/api/deployment", params={"of": "state"}).json()
    assert answer["status"]["state"] == "idle" and answer["run"] is None and answer["jobs"] == answer["alerts"] == []
    nodes = {node["name"]: node for node in answer["nodes"]}
    assert list(nodes) == ["cloud", "e0", "e1", "d0", "d1"] and nodes["d1"]["home"] == nodes["d1"]["edge"] == "e1"
    assert len({node["software"] for node in nodes.values()}) == 1
    for name in nodes:  # as the file of its kit says
        certificate = (fleet.kits / name / "node.pem").read_bytes()
        assert nodes[name]["expires_s"] == expiry_of(certificate) and nodes[name]["serial"] == serial_of(certificate)


def test_two_jobs_end_in_the_simulations_bits_and_no_node_is_touched(fleet, tmp_path):
    first, second = submit(fleet), submit(fleet, "seed=3", "--deliver", "final")
    processes = {name: process.pid for name, process in fleet.processes.items()}
    fleet.wait_for_job(second)
    assert [job["state"] for job in fleet.jobs()][:2] == ["ended", "ended"]
    sizes = ("network.num_edges=2", "network.devices_per_edge=1")
    assert final_bytes(fleet.job_folder(first)) == simulated(tmp_path / "a", *sizes)
    assert final_bytes(fleet.job_folder(second)) == simulated(tmp_path / "b", *sizes, "seed=3")
    assert all(process.is_alive() for process in fleet.processes.values())
    assert processes == {name: process.pid for name, process in fleet.processes.items()}
    fleet.wait_for(lambda: fleet.status().state == "idle" and fleet.status().online("device") == 2, "all wait")

    def holders() -> list[str]:
        found = json.loads(fleet.ask("models", fleet.kits / "cloud", "--json"))
        assert [(one["version"], one["job"], one["which"]) for one in found["deliveries"]] == [(1, second, "final")]
        return [node["name"] for node in found["held"] if node["version"] == 1]

    fleet.wait_for(lambda: holders() == ["d0", "d1", "e0", "e1"], "all hold the model of the second job")
    said = fleet.ask("logs", fleet.kits / "cloud", second)
    assert f"Job {second} has ended." in said and f"Job {first}" not in said
    lines = fleet.ask("logs", fleet.kits / "cloud", second, "--json").splitlines()
    assert {(line["node"], line["job"]) for line in map(json.loads, lines)} == {("cloud", second)}


def test_a_job_that_is_stopped_continues_to_the_same_bits_when_everything_was_killed(fleet, tmp_path):
    number = submit(fleet, "rounds.global_rounds=6", "seed=5")
    fleet.wait_for(
        lambda: any(fleet.kits.glob(f"cloud/state/runs/job-{number:04d}-*/records.jsonl")), "a round is over"
    )
    fleet.ask("stop", fleet.kits / "cloud", number)
    fleet.wait_for_job(number, "stopped")
    for name in ("e0", "d0"):
        fleet.kill(name)
        fleet.start(name)
    fleet.ask("resume", fleet.kits / "cloud", number)
    fleet.wait_for(lambda: fleet.status().state == "running", "it goes on")
    fleet.kill("cloud")
    fleet.serve("--metrics-port", "0")
    fleet.wait_for_job(number)
    sizes = ("network.num_edges=2", "network.devices_per_edge=1")
    expected = simulated(tmp_path / "run", *sizes, "rounds.global_rounds=6", "seed=5")
    assert final_bytes(fleet.job_folder(number)) == expected


def test_a_second_cloud_and_a_job_that_was_never_submitted_are_refused_in_one_sentence(fleet, tmp_path, command):
    status, _, err = command("deploy", "serve", fleet.kits / "cloud")
    state = fleet.kits / "cloud/state"
    sentence = f"error: A cloud serves this fleet already, with the folder {state}; stop it first.\n"
    assert (status, err) == (2, sentence)
    with pytest.raises(UsageError, match="Job 1 is unknown; there is none yet"):
        Registry(tmp_path / "fleet.sqlite").job(1)


def test_a_job_that_cannot_run_fails_with_its_reason_and_the_next_one_runs(fleet):
    wrong = {"name": "bad", "scenario": 'base = "smoke"\n[model]\nname = "unheard-of"\n', "settings": {}}
    bad = registry_of(fleet.kits / "cloud/state").submit(**wrong).number
    good = submit(fleet)
    fleet.wait_for_job(good)
    found = {job["number"]: job for job in fleet.jobs()}
    assert found[bad]["state"] == "failed" and "'unheard-of' is unknown" in found[bad]["reason"]


def test_after_jobs_kills_and_a_failure_metrics_status_and_page_agree_on_all_counts(fleet, site):
    fleet.wait_for(lambda: fleet.status().state == "idle" and fleet.status().online("device") == 2, "all wait")
    shown = counts_of(fleet, site)
    rows = [row for job in fleet.jobs() for row in read_measured(RunFolder(Path(job["folder"])))]
    assert shown["uploads"]["ok"] == sum(row.fate == "ok" for row in rows) >= 8
    assert shown["edge_rounds"] == 9 and shown["upload_bytes"] == sum(row.bytes or 0 for row in rows)
    assert shown["jobs"]["ended"] == 4 and shown["jobs"]["failed"] == 1 and shown["models"] == 1
    fleet.kill("d1")
    fleet.wait_for(lambda: fleet.status().online("device") == 1, "it is missed")
    shown = counts_of(fleet, site)
    assert shown["alerts"] == {"missing": 1}
    answer = site.client.get("/api/deployment", params={"of": "state"}).json()
    assert [(alert["node"], alert["kind"]) for alert in answer["alerts"]] == [("d1", "missing")]
    fleet.start("d1")


def test_jobs_are_taken_in_order_and_one_that_ran_comes_first(tmp_path):
    registry = Registry(tmp_path / "fleet.sqlite")
    first, second, third = (registry.submit(name="x", scenario="", settings={}) for _ in range(3))
    registry.stop(first.number)
    assert registry.take_next().number == second.number
    assert Registry(tmp_path / "fleet.sqlite").take_next().number == second.number  # as after a restart
    assert registry.stop(second.number).state == "stopping"
    registry.finish(second.number, "stopped")
    assert registry.resume(first.number).state == "queued"
    assert [registry.take_next().number, registry.current().number] == [first.number] * 2
    registry.finish(first.number, "ended")
    assert registry.take_next().number == third.number
    with pytest.raises(UsageError, match="Job 1 has ended already"):
        registry.stop(first.number)
    with pytest.raises(UsageError, match="Job 9 is unknown; the latest are 1, 2, 3"):
        registry.job(9)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_finds_no_fault_in_the_units(tmp_path, command):
    assert command("deploy", "init", tmp_path / "lab", "--edges", "1", "--devices-per-edge", "1")[0] == 0
    for name in ("cloud", "e0", "d0"):
        options = ["--", "--data", "a folder/50%$.npz"] if name == "d0" else []
        status, unit, _ = command("deploy", "systemd", tmp_path / "lab" / name, "--user", "daemon", *options)
        assert status == 0 and f"deploy {'serve' if name == 'cloud' else 'edge' if name == 'e0' else 'device'} " in unit
        path = tmp_path / f"airprune-{name}.service"
        path.write_text(unit)
        done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
        about_it = [line for line in done.stderr.splitlines() if path.name in line and "RestartSteps" not in line]
        about_it = [line for line in about_it if "RestartMaxDelaySec" not in line]
        assert not about_it, done.stderr


def test_a_unit_is_for_one_user(tmp_path, command):
    assert command("deploy", "init", tmp_path / "lab", "--edges", "1", "--devices-per-edge", "1")[0] == 0
    status, out, err = command("deploy", "systemd", tmp_path / "lab/d0", "--user", "a b")
    assert (status, out) == (2, "") and "--user must be the name of a user, got 'a b'." in err


@pytest.mark.netns
def test_a_cloud_in_a_file_system_as_its_unit_leaves_it_renews_and_enrols(tmp_path, command):
    """Read-only but for ReadWritePaths, after ExecStartPre, by mounts of its own; systemd itself does not run here."""
    lab, port = tmp_path / "lab", free_ports(9620, 3)
    options = ["--edges", "1", "--devices-per-edge", "1", "--days", "1", "--port", port]
    assert command("deploy", "init", lab, *options)[0] == 0
    status, unit, _ = command(
        "deploy", "systemd", lab / "cloud", "--user", "root", "--",
        "--authority", os.path.relpath(lab), f"--enrol-port={port + 2}",
    )  # fmt: skip
    assert status == 0
    keys = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    assert keys["ProtectSystem"] == "strict" and keys["PrivateTmp"] == "true" and not (lab / "cloud/state").exists()
    subprocess.run(shlex.split(keys["ExecStartPre"].removeprefix("+")), check=True)
    mounts = [f"mount --bind {place} {place}" for place in shlex.split(keys["ReadWritePaths"])]
    private = tmp_path / "private"
    private.mkdir()
    mounts.append(f"mount -t tmpfs private {private}")
    script = " && ".join([*mounts, f"mount -o remount,bind,ro {mount_of(lab)}", f"cd / && exec {keys['ExecStart']}"])
    with (tmp_path / "log").open("w") as log:
        cloud = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script],
            stdout=log,
            stderr=log,
            env={**os.environ, "TMPDIR": str(private)},
        )
    try:
        (code,) = command("deploy", "invite", lab, "--edge", "e0")[1].split()
        wait_for(lambda: "Devices are enrolled" in (tmp_path / "log").read_text(), (tmp_path / "log").read_text)
        status, _, err = command("deploy", "enrol", code, "--at", f"127.0.0.1:{port + 2}", "--kit", tmp_path / "d1")
        assert status == 0, err + (tmp_path / "log").read_text()
        assert load_members(lab / "cloud").all_devices == ("d0", "d1")
    finally:
        cloud.terminate()
        cloud.wait(60)
    assert "Traceback" not in (tmp_path / "log").read_text()


def mount_of(path: Path) -> Path:
    return path if path.is_mount() else mount_of(path.parent)


def wait_for(condition, said) -> None:
    end_s = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end_s, said()
        time.sleep(0.1)
