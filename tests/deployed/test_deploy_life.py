"""The life of a fleet, with real processes over TLS: jobs, growth, a revoked device, a model that comes home.

The same life with kill -9 of cloud, edges and devices at random moments: nothing is lost. What a job met is in its
folder, so that its replay ends in the same bits; where every device took part in every round and was in time, so does
the simulation.
"""

import json
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.scenario.data import dataset_of
from support.federation import Processes, rows_of
from support.lab import free_ports
from support.tiny import final_bytes

SMALL = (
    "data.train_samples=160",
    "data.test_samples=40",
    "radio.bandwidth_hz=2e7",
    "rounds.global_rounds=1",
    "rounds.edge_rounds=2",
    "engine.name=serial",
)
PATIENT = ("--plan-with", "network", "--grace", "120", "--patience", "120")
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from airprune.cli import main; sys.exit(main(sys.argv[1:]))"


class Life:
    """Scripts what an operator does with a fleet.

    Args:
      killing: chooses who is killed in the middle of a job, and when; without it no node is.
    """

    def __init__(self, fleet: Processes, killing: random.Random | None = None) -> None:
        self.fleet, self.cloud, self.killing = fleet, fleet.kits / "cloud", killing
        self.metrics_port = free_ports(9560, 1)
        self.killed: list[str] = []

    def serve(self) -> None:
        self.fleet.serve("--metrics-port", str(self.metrics_port), "--authority", str(self.fleet.kits))

    def start(self, name: str) -> None:
        if name == "cloud":
            self.serve()
        else:
            self.fleet.start(name)

    def run_job(self, *changes: str) -> int:
        """Runs a job to its end; returns its number."""
        number = int(self.fleet.ask("submit", self.cloud, "deployed", *SMALL, *changes, *PATIENT))
        if self.killing is not None:
            self._kill_each_role(number, self.killing)
        self.fleet.wait_for_job(number)
        return number

    def _kill_each_role(self, number: int, rng: random.Random) -> None:
        """Kills the cloud, an edge and a device, in any order, at random moments; each is started again."""
        begun = self.fleet.kits.glob
        self.fleet.wait_for(lambda: any(begun(f"cloud/state/runs/job-{number:04d}-*")), "the job begins")
        nodes = [name for name, process in self.fleet.processes.items() if process.is_alive()]
        for role in rng.sample("ced", 3):
            time.sleep(rng.uniform(0.0, 2.0))
            name = rng.choice([node for node in nodes if node.startswith(role)])
            self.fleet.kill(name)
            self.start(name)
            self.killed.append(name)

    def check_bits(self, number: int) -> None:
        """Compares a job with its replay, and with the simulation if no device missed a round."""
        run = self.fleet.job_folder(number)
        assert self._again(run, f"replayed-{number}", replay=run) == final_bytes(run)
        missed_none = self.missed(number) == 0
        assert missed_none or self.killing is not None, self.fleet.log("cloud")
        if missed_none:
            assert self._again(run, f"simulated-{number}") == final_bytes(run)

    def missed(self, number: int) -> int:
        """How many updates are missing: of devices that were not online when a round was planned, or lost in it."""
        run = self.fleet.job_folder(number)
        scenario = ap.Scenario.load(str(run / "scenario.toml"))
        per_edge = scenario.network.devices_per_edge
        num_devices = per_edge * scenario.network.num_edges if isinstance(per_edge, int) else sum(per_edge)
        num_rounds = scenario.rounds.global_rounds * scenario.rounds.edge_rounds
        came = sum(row["fate"] == "ok" for row in rows_of(run / "measured.jsonl"))
        return num_devices * num_rounds - came

    def _again(self, run: Path, name: str, **options: object) -> tuple[bytes, bytes]:
        out = self.fleet.folder / name
        for _ in ap.run(ap.Scenario.load(str(run / "scenario.toml")), out=out, **options):
            pass
        return final_bytes(out)

    def wait_online(self, *names: str) -> None:
        """Waits until these are online, and no others beside the cloud."""

        def are_there() -> bool:
            found = self.fleet.status()
            return found is not None and {one.name for one in found.nodes if one.online} - {"cloud"} == {*names}

        self.fleet.wait_for(are_there, f"{names} and no others are online")

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(number) for name, _, number in pairs}

    def check_watched(self, nodes: set[str], *jobs: int) -> None:
        """Compares what `deploy status` and `/metrics` say of these nodes and of the jobs that have ended."""
        self.wait_online(*nodes)
        said, served = json.loads(self.fleet.ask("status", self.cloud, "--json")), self.metrics()
        assert {one["name"] for one in said["nodes"] if one["online"]} == {*nodes, "cloud"}
        uploads, rounds = Counter[str](), set()
        for number in jobs:
            rows = rows_of(self.fleet.job_folder(number) / "measured.jsonl")
            uploads.update(row["fate"] for row in rows)
            rounds |= {(number, row["global_round"], row["edge_round"]) for row in rows}
        counts = said["counts"]
        assert {fate: number for fate, number in counts["uploads"].items() if number} == uploads
        assert counts["edge_rounds"] == served["airprune_rounds_total"] == len(rounds)
        for fate, number in counts["uploads"].items():
            assert served[f'airprune_uploads_total{{fate="{fate}"}}'] == number
        for role in ("edge", "device"):
            there = sum(name.startswith(role[0]) for name in nodes)
            assert counts["online"][role] == served[f'airprune_nodes_online{{role="{role}"}}'] == there
        assert counts["jobs"].get("ended", 0) == served.get('airprune_jobs{state="ended"}', 0) == len(jobs)

    def change_members(self) -> tuple[str, str]:
        """Adds an edge with a device, puts an empty machine in the place of d0, revokes d1; returns what was added."""
        fleet = self.fleet
        added = [Path(fleet.ask("add", "edge", fleet.kits, "--port", free_ports(9580, 1)).strip()).name]
        added += [Path(fleet.ask("add", "device", fleet.kits, "--edge", added[0]).strip()).name]
        for name in added:
            fleet.start(name)
        fleet.ask("renew", fleet.kits, "d0")
        assert fleet.wait("d0") == 1
        shutil.rmtree(fleet.kits / "d0/state")
        fleet.start("d0")
        fleet.ask("revoke", fleet.kits, "d1")
        assert fleet.wait("d1") == 1
        edge, device = added
        return edge, device

    def bring_model_home(self, number: int, names: set[str]) -> None:
        version = int(self.fleet.ask("deliver", self.cloud, number))

        def holders() -> set[str]:
            found = json.loads(self.fleet.ask("models", self.cloud, "--json"))["held"]
            return {node["name"] for node in found if node["version"] == version}

        self.fleet.wait_for(lambda: holders() == names, f"{names} hold the model")

    def accuracy_without_torch(self, device: str, number: int) -> float:
        """What `deploy predict` finds on a device in a process that has no torch, for the test samples of a job."""
        data = self.fleet.folder / "test.npz"
        test = dataset_of(ap.Scenario.load(str(self.fleet.job_folder(number) / "scenario.toml")))
        np.savez(data, x=test.test_x, y=test.test_y)
        words = ("deploy", "predict", self.fleet.kits / device, "--data", data, "--json")
        done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["accuracy"]


def live(life: Life, *changes: str) -> None:
    """From the first start to a prediction with the model of the second job; everything is watched meanwhile."""
    fleet = life.fleet
    nodes = {*fleet.edges, *fleet.devices}
    fleet.start_all()
    life.serve()
    life.check_watched(nodes)
    first = life.run_job(*changes)
    life.check_bits(first)
    life.check_watched(nodes, first)

    edge, device = life.change_members()
    nodes = (nodes | {edge, device}) - {"d1"}
    life.check_watched(nodes, first)
    assert "was revoked" in next(node.trouble for node in fleet.status().nodes if node.name == "d1")
    fleet.ask("remove", fleet.kits, "d1")

    second = life.run_job(*changes, "seed=2")
    life.check_bits(second)
    names = {row["name"] for row in rows_of(fleet.job_folder(second) / "measured.jsonl")}
    devices = {name for name in nodes if name.startswith("d")}
    assert names == devices if life.killing is None else names <= devices
    life.check_watched(nodes, first, second)
    life.bring_model_home(second, nodes)
    assert life.metrics()["airprune_model_holders"] == len(nodes)
    last = rows_of(fleet.job_folder(second) / "records.jsonl")[-1]
    assert life.accuracy_without_torch(device, second) == pytest.approx(last["test_accuracy"])
    assert [job["state"] for job in fleet.jobs()] == ["ended", "ended"]


def test_the_life_of_a_small_fleet(tmp_path):
    with Processes(tmp_path, num_edges=1, devices_per_edge=2) as fleet:
        life = Life(fleet)
        live(life)
        assert life.metrics()["airprune_rounds_total"] == 4


@pytest.mark.slow
def test_the_life_of_a_fleet_of_three_edges_and_twelve_devices(tmp_path):
    with Processes(tmp_path, num_edges=3, devices_per_edge=4) as fleet:
        live(Life(fleet), "data.train_samples=480")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_life_of_a_fleet_whose_nodes_are_killed_at_random_moments(tmp_path, seed):
    with Processes(tmp_path, num_edges=3, devices_per_edge=4) as fleet:
        life = Life(fleet, random.Random(seed))
        live(life, "data.train_samples=480", "rounds.global_rounds=3")
        assert len(life.killed) == 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_kills_of_cloud_and_edges_alone_cost_only_time(tmp_path, seed):
    rng = random.Random(seed)
    with Processes(tmp_path, num_edges=3, devices_per_edge=2) as fleet:
        life = Life(fleet)
        fleet.start_all()
        life.serve()
        life.wait_online(*fleet.edges, *fleet.devices)
        numbers = [
            int(fleet.ask("submit", life.cloud, "deployed", *SMALL, "model.name=mlp", f"seed={n}", *PATIENT))
            for n in range(3)
        ]
        for _ in range(8):
            time.sleep(rng.uniform(0.0, 1.0))
            name = rng.choice(["cloud", *fleet.edges])
            fleet.kill(name)
            life.start(name)
        for number in numbers:
            fleet.wait_for_job(number)
            assert life.missed(number) == 0
            life.check_bits(number)
