"""The life of a fleet, with real processes over TLS: jobs, growth, a revoked device, a model that comes home."""

import json
import random
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.scenario.data import dataset_of
from support.federation import Processes
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
    """Scripts what an operator does with a fleet."""

    def __init__(self, fleet: Processes) -> None:
        self.fleet, self.cloud = fleet, fleet.kits / "cloud"
        self.metrics_port = free_ports(9560, 1)

    def serve(self) -> None:
        self.fleet.serve("--metrics-port", str(self.metrics_port), "--authority", str(self.fleet.kits))

    def submit(self, *changes: str) -> int:
        return int(self.fleet.ask("submit", self.cloud, "deployed", *SMALL, *changes, *PATIENT))

    def wait_online(self, *names: str) -> None:
        def are_there() -> bool:
            found = self.fleet.status()
            return found is not None and {node.name for node in found.nodes if node.online} == {*names}

        self.fleet.wait_for(are_there, f"{names} and no others are online")

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def simulated(self, number: int, out: Path) -> tuple[bytes, bytes]:
        """Records and model of the same scenario in simulation."""
        scenario = ap.Scenario.load(str(self.fleet.job_folder(number) / "scenario.toml"))
        for _ in ap.run(scenario, out=out):
            pass
        return final_bytes(out)


def test_the_life_of_a_small_fleet(tmp_path):
    with Processes(tmp_path, num_edges=1, devices_per_edge=2) as fleet:
        life = Life(fleet)
        fleet.start_all()
        life.serve()
        life.wait_online("e0", "d0", "d1")
        first = life.submit()
        fleet.wait_for_job(first)
        assert final_bytes(fleet.job_folder(first)) == life.simulated(first, tmp_path / "first")

        # an edge and a device are added, a device gets a new kit, another is revoked
        fleet.ask("add", "edge", fleet.kits, "--port", free_ports(9580, 1))
        fleet.ask("add", "device", fleet.kits, "--edge", "e1")
        for name in ("e1", "d2"):
            fleet.start(name)
        fleet.ask("renew", fleet.kits, "d0")
        assert fleet.wait("d0") == 1
        fleet.start("d0")
        fleet.ask("revoke", fleet.kits, "d1")
        assert fleet.wait("d1") == 1
        life.wait_online("e0", "e1", "d0", "d2")
        assert "was revoked" in next(node.trouble for node in fleet.status().nodes if node.name == "d1")
        assert life.metric('airprune_nodes_online{role="device"}') == 2
        fleet.ask("remove", fleet.kits, "d1")

        second = life.submit("seed=2")
        fleet.wait_for_job(second)
        assert final_bytes(fleet.job_folder(second)) == life.simulated(second, tmp_path / "second")
        rows = [json.loads(line) for line in (fleet.job_folder(second) / "measured.jsonl").read_text().splitlines()]
        assert {row["name"] for row in rows} == {"d0", "d2"}
        assert life.metric("airprune_rounds_total") == 4

        # the model comes home
        version = fleet.ask("deliver", life.cloud, second).strip()
        assert version == "1"

        def holders() -> set[str]:
            found = json.loads(fleet.ask("models", life.cloud, "--json"))["held"]
            return {node["name"] for node in found if node["version"] == 1}

        fleet.wait_for(lambda: holders() == {"e0", "e1", "d0", "d2"}, "all nodes hold the model")
        test = dataset_of(ap.Scenario.preset("deployed").with_overrides(SMALL))
        np.savez(tmp_path / "test.npz", x=test.test_x, y=test.test_y)
        words = ("deploy", "predict", fleet.kits / "d2", "--data", tmp_path / "test.npz", "--json")
        done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        records = [json.loads(line) for line in (fleet.job_folder(second) / "records.jsonl").read_text().splitlines()]
        assert json.loads(done.stdout)["accuracy"] == pytest.approx(records[-1]["test_accuracy"])


# Some replays end in other bits: those of jobs in which an edge was killed in the middle of a round.
@pytest.mark.xfail(strict=False, reason="a job whose edge was killed in a round is not always replayed to its bits")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_jobs_of_a_fleet_end_in_the_simulations_bits_whoever_is_killed(tmp_path, seed):
    rng = random.Random(seed)
    with Processes(tmp_path, num_edges=3, devices_per_edge=4) as fleet:
        life = Life(fleet)
        fleet.start_all()
        life.serve()
        numbers = [life.submit("model.name=mlp", "data.train_samples=480", f"seed={seed + n}") for n in range(3)]
        for _ in range(6):
            state = {job["number"]: job["state"] for job in fleet.jobs()}
            if state[numbers[-1]] in ("ended", "failed"):
                break
            before = len(list(tmp_path.rglob("inputs.jsonl")))
            name = rng.choice(["cloud", *fleet.edges, *fleet.devices])
            fleet.kill(name)
            life.serve() if name == "cloud" else fleet.start(name)
            fleet.wait_for(
                lambda: fleet.status() is not None and fleet.status().online("device") == 12, f"{name} is back"
            )
            assert before <= len(list(tmp_path.rglob("inputs.jsonl")))
        for number in numbers:
            fleet.wait_for_job(number)
            out = tmp_path / f"simulated-{number}"
            rows = (fleet.job_folder(number) / "measured.jsonl").read_text().splitlines()
            fates = [json.loads(row)["fate"] for row in rows]
            if set(fates) == {"ok"}:  # a device that was killed in a round may have cost its update
                assert final_bytes(fleet.job_folder(number)) == life.simulated(number, out)
            else:
                for _ in ap.run(
                    ap.Scenario.load(str(fleet.job_folder(number) / "scenario.toml")),
                    out=out,
                    replay=fleet.job_folder(number),
                ):
                    pass
                assert final_bytes(out) == final_bytes(fleet.job_folder(number))
            shutil.rmtree(out)
