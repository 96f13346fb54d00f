"""A device for 64-bit ARM without torch, emulated by qemu-user: Debian's Python, wheels, NEON."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.models.kernels import native
from airprune.scenario.data import dataset_of
from support import arm, small_rounds
from support.federation import Processes
from support.tiny import final_bytes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}"),
    pytest.mark.skipif(bool(arm.missing()), reason=arm.missing() or "ARM is emulated"),
]
SMALL = (
    "network.num_edges=1",
    "network.devices_per_edge=2",
    "data.train_samples=160",
    "data.test_samples=40",
    "radio.bandwidth_hz=2e7",
    "rounds.global_rounds=1",
    "rounds.edge_rounds=2",
    "engine.name=serial",
)
PATIENT = ("--plan-with", "network", "--grace", "300", "--patience", "300")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Returns the emulated Python of a device of tools/arm64.py; AIRPRUNE_ARM64 names one made before."""
    if made := os.environ.get("AIRPRUNE_ARM64"):
        return Path(made) / "python"
    folder = tmp_path_factory.mktemp("arm64") / "device"
    subprocess.run([sys.executable, arm.ROOT / "tools/arm64.py", folder], check=True, timeout=1_200)
    return folder / "python"


def test_a_device_on_arm_sends_and_remembers_the_bits_of_this_machine(python):
    program = Path(small_rounds.__file__)
    emulated, ours = (
        json.loads(subprocess.run([one, program], capture_output=True, check=True, timeout=900).stdout)
        for one in (python, sys.executable)
    )
    assert emulated == ours and set(small_rounds.CASES) < set(ours)


def test_doctor_finds_the_kernel_of_arm_and_no_torch(python):
    done = subprocess.run([python, "-m", "airprune", "doctor"], capture_output=True, text=True, timeout=900)
    rows = {row.split()[0]: row.split()[1:] for row in done.stdout.splitlines() if row.strip()}
    assert done.returncode == 0, done.stdout
    assert rows["kernel"] == ["ok", "native,", "neon"] and rows["torch"][0] == rows["training"][0] == "note"


def test_a_fleet_with_a_device_on_arm_ends_in_the_simulations_bits_and_its_model_predicts_there(python, tmp_path):
    with Processes(tmp_path, num_edges=1, devices_per_edge=2) as fleet:
        for name in ("e0", "d1"):
            fleet.start(name)
        command = [python, "-m", "airprune", "deploy", "device", fleet.kits / "d0"]
        with (tmp_path / "arm.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as emulated:
            try:
                use_fleet(fleet, emulated, tmp_path)
                report = predicted(python, fleet.kits / "d0", tmp_path)
            finally:
                emulated.terminate()
    assert report["kernel"] == "native" and report["version"] == 1


def use_fleet(fleet, emulated, tmp_path):
    """One job, whose model and records are the simulation's; then its model is delivered to all nodes."""
    cloud = fleet.kits / "cloud"
    fleet.serve()
    job = int(fleet.ask("submit", cloud, "deployed", *SMALL, *PATIENT))
    wait_for(lambda: state_of(fleet, job) == "ended", emulated)
    folder = fleet.job_folder(job)
    for _ in ap.run(ap.Scenario.load(str(folder / "scenario.toml")), out=tmp_path / "simulated"):
        pass
    assert final_bytes(folder) == final_bytes(tmp_path / "simulated")
    rows = [json.loads(line) for line in (folder / "measured.jsonl").read_text().splitlines()]
    assert sorted((row["name"], row["fate"]) for row in rows) == [("d0", "ok")] * 2 + [("d1", "ok")] * 2
    fleet.ask("deliver", cloud, job)

    def held():
        return {node["name"] for node in json.loads(fleet.ask("models", cloud, "--json"))["held"] if node["version"]}

    wait_for(lambda: held() == {"e0", "d0", "d1"}, emulated)


def predicted(python, kit, tmp_path):
    """The prediction of the emulated device, whose scores are those of this machine to the bit."""
    test = dataset_of(ap.Scenario.preset("deployed").with_overrides(SMALL))
    np.savez(tmp_path / "test.npz", x=test.test_x, y=test.test_y)
    found = {}
    for name, one in (("arm", python), ("here", sys.executable)):
        words = ["deploy", "predict", kit, "--data", tmp_path / "test.npz", "--out", tmp_path / f"{name}.npy", "--json"]
        done = subprocess.run([one, "-m", "airprune", *words], capture_output=True, text=True, check=True, timeout=300)
        found[name] = json.loads(done.stdout)
    assert np.load(tmp_path / "arm.npy").tobytes() == np.load(tmp_path / "here.npy").tobytes()
    assert found["arm"]["accuracy"] == found["here"]["accuracy"] > 0.2  # of ten classes
    return found["arm"]


def state_of(fleet, job):
    (found,) = (one for one in fleet.jobs() if one["number"] == job)
    assert found["state"] != "failed", found
    return found["state"]


def wait_for(condition, emulated):
    """Bounded: an emulated device takes tens of times as long as this machine."""
    end_s = time.monotonic() + 900
    while not condition():
        assert emulated.poll() is None, "the emulated device has ended: see arm.log"
        assert time.monotonic() < end_s, "timed out"
        time.sleep(0.2)
