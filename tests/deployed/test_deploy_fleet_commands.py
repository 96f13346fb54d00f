"""The commands of docs/deploy-fleet.md as it gives them, in its order: one empty folder per machine, real processes."""

import contextlib
import json
import re
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tools.readme import _split as split

from airprune.deployment.fleet.service import registry_of
from airprune.deployment.status import read_status_file
from support.docs_blocks import blocks
from support.lab import free_ports
from support.processes import AIRPRUNE

PAGE = Path(__file__).parents[2] / "docs/deploy-fleet.md"
NUM_SAMPLES = 40
# What makes the page's jobs short ones, in which no upload is late on a busy machine.
SMALL = ("rounds.edge_rounds=1", "data.train_samples=80", "data.test_samples=40", "engine.name=serial", "--grace", "60")
WITHIN_S = 240.0
pytestmark = pytest.mark.slow
# What changes the machine that it runs on.
ELSEWHERE = "sudo systemctl enable --now airprune"
TO_A_UNIT = " | sudo tee /etc/systemd/system/airprune.service"


def commands() -> list[str]:
    found = [block for block in blocks(PAGE.read_text()) if block.kind == "bash"]
    return [command for block in found for command in split(block.content)]


class Page:
    """Follows the page: each command is taken from it by its first words, and counted as run.

    A machine is a folder, in which its commands run; `desk` is the operator's and the cloud's. Addresses of the page's
    own network do not exist here, and its ports may be taken.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.left = folder, [command for command in commands() if command != ELSEWHERE]
        self.port, self.enrol_port = free_ports(9600, 3), free_ports(9610, 1)
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(NUM_SAMPLES, 1, 28, 28)).astype(np.float32)
        self.y = rng.integers(0, 10, NUM_SAMPLES)

    def machine(self, name: str) -> Path:
        place = self.folder / name
        if not place.exists():
            place.mkdir()
            np.savez(place / "samples.npz", x=self.x, y=self.y)
            np.savez(place / "new.npz", x=self.x)
        return place

    def words(self, beginning: str, *more: str, **replaced: str) -> list[str]:
        """The page's command that begins so, each only once; `replaced`: words that stand for others."""
        command = next(one for one in self.left if one.startswith(f"airprune deploy {beginning}"))
        self.left.remove(command)
        command = command.removesuffix(TO_A_UNIT)
        command = re.sub(r"192\.168\.1\.\d+", "127.0.0.1", command).replace("8699", str(self.enrol_port))
        return [AIRPRUNE, *(replaced.get(word, word) for word in shlex.split(command)[1:]), *more]

    def run(self, machine: str, beginning: str, *more: str, **replaced: str) -> str:
        """Runs a command to its end; returns what it prints."""
        return self.ask(machine, self.words(beginning, *more, **replaced))

    def ask(self, machine: str, words: list[str]) -> str:
        place = self.machine(machine)
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=WITHIN_S)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (words, done.stdout, done.stderr)
        return done.stdout

    def start(self, machine: str, words: list[str]) -> None:
        """Starts a node, which stays."""
        place = self.machine(machine)
        with (place / "log").open("ab") as log:
            self.nodes[machine] = subprocess.Popen(words, cwd=place, stdout=log, stderr=log)

    def log(self, machine: str) -> str:
        return (self.machine(machine) / "log").read_text()

    def stop(self, machine: str) -> int:
        """Ctrl-C."""
        process = self.nodes.pop(machine)
        process.send_signal(signal.SIGINT)
        return process.wait(WITHIN_S)

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        end_s = time.monotonic() + WITHIN_S
        while not condition():
            if time.monotonic() > end_s:
                raise AssertionError(f"not within {WITHIN_S:g} s: {what}\n" + "".join(map(self.log, self.nodes)))
            time.sleep(0.5)

    @property
    def state(self) -> Path:
        return self.machine("desk") / "lab/cloud/state"

    def wait_for_job(self, number: int, state: str) -> None:
        self.wait_for(lambda: registry_of(self.state).job(number).state == state, f"job {number} has {state}")

    def wait_online(self, **homes: str) -> None:
        """Waits until these devices, and no others, are online, each at its edge."""

        def are_there() -> bool:
            status = read_status_file(self.state / "status.json")
            nodes = status.nodes if status is not None else ()
            return {one.name: one.edge for one in nodes if one.online and one.role == "device"} == homes

        self.wait_for(are_there, str(homes))

    def close(self) -> None:
        for process in self.nodes.values():
            process.kill()
        for process in self.nodes.values():
            process.wait()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with contextlib.closing(Page(tmp_path_factory.mktemp("fleet-page"))) as made:
        yield made


def test_a_fleet_begins_runs_jobs_grows_and_uses_its_models_by_the_commands_of_the_page(page):
    begin(page)
    run_jobs(page)
    grow(page)
    enrol(page)
    use_models(page)
    assert not page.left, page.left
    assert all(page.stop(machine) == 130 for machine in list(page.nodes))
    assert not any("Traceback" in path.read_text() for path in page.folder.glob("*/log"))


def begin(page):
    page.run("desk", "init", "--port", str(page.port))
    for kit, machine in (("e0", "gateway"), ("d0", "first"), ("d1", "second")):
        shutil.copytree(page.machine("desk") / "lab" / kit, page.machine(machine) / "kit")
    serve, edge, device = page.words("serve"), page.words("edge"), page.words("device")
    page.start("second", device)  # in any order
    page.start("desk", serve)
    page.start("first", device)
    page.start("gateway", edge)
    page.wait_online(d0="e0", d1="e0")
    unit = page.run("first", "systemd")
    kit = page.machine("first") / "kit"
    assert f"deploy device {kit} --state-dir {kit}/state --data /opt/airprune/samples.npz" in unit.replace('"', "")


def run_jobs(page):
    assert page.run("desk", "submit", *SMALL) == "1\n"
    assert re.search(r"1 .* (queued|running)", page.run("desk", "jobs"))
    with subprocess.Popen(page.words("logs"), cwd=page.machine("desk"), stdout=subprocess.PIPE, text=True) as following:
        for line in following.stdout:
            if "Global round 2 of 20" in line:
                break
        following.send_signal(signal.SIGINT)
        assert following.wait(WITHIN_S) == 0
    page.run("desk", "stop")
    page.wait_for_job(1, "stopped")
    page.run("desk", "resume")
    page.wait_for_job(1, "ended")
    assert "20 edge rounds; uploads: 40 ok, 0 late" in page.run("desk", "status")


def grow(page):
    added = page.run("desk", "add device").split() + page.run("desk", "add edge").split()
    assert added == ["lab/d2", "lab/d3", "lab/d4", "lab/e1"]
    for kit, role in (("e1", "edge"), ("d2", "device")):
        shutil.copytree(page.machine("desk") / "lab" / kit, page.machine(kit) / "kit")
        more = ["--data", "samples.npz"] if role == "device" else []
        page.start(kit, [AIRPRUNE, "deploy", role, "kit", *more])
    page.wait_online(d0="e0", d1="e0", d2="e0")
    page.wait_for(lambda: "Connected to cloud" in page.log("e1"), "e1 is connected")
    page.run("desk", "move")
    page.wait_online(d0="e0", d1="e1", d2="e0")
    page.run("desk", "remove")
    assert page.nodes.pop("first").wait(WITHIN_S) == 1
    page.wait_online(d1="e1", d2="e0")


def enrol(page):
    assert page.stop("desk") == 130
    page.start("desk", page.words("serve"))
    codes = page.run("desk", "invite").split()
    assert len(set(codes)) == 20
    page.wait_for(lambda: "Devices are enrolled at port" in page.log("desk"), "the cloud enrols")
    page.run("new", "enrol", CODE=codes[0])
    page.start("new", [AIRPRUNE, "deploy", "device", "kit", "--data", "samples.npz"])
    page.wait_online(d1="e1", d2="e0", d5="e0")


def use_models(page):
    assert page.run("desk", "deliver") == "1\n"
    # d3 and d4 were added and not started; the job begins without them.
    submit = page.words("submit", "rounds.global_rounds=1", *SMALL, "--wait", "5")
    assert page.ask("desk", submit) == "2\n"
    page.wait_for_job(2, "ended")

    def holders(version: int) -> set[str]:
        return {one.name for one in registry_of(page.state).held() if one.version == version}

    online = {"d1", "d2", "d5", "e0", "e1"}
    page.wait_for(lambda: holders(2) == online, "all hold the model of the second job")
    assert re.search(r"2 +2 +final .* d1, d2, d5, e0, e1", page.run("desk", "models"))
    labels = page.run("second", "predict").split()
    assert len(labels) == NUM_SAMPLES and {*labels} <= {*map(str, range(10))}
    assert page.run("desk", "rollback") == "3\n"
    page.wait_for(lambda: holders(3) == online, "all hold the model of the first job again")


def test_the_web_page_of_the_fleet_shows_what_the_commands_have_made(page):
    assert "`airprune web lab/cloud`" in PAGE.read_text()
    words = [AIRPRUNE, "web", "lab/cloud", "--port", "0"]
    with subprocess.Popen(words, cwd=page.machine("desk"), stdout=subprocess.PIPE) as server:
        try:
            address = server.stdout.readline().decode().split("?")[0].strip().rstrip("/")
            with urllib.request.urlopen(f"{address}/api/deployment?of=state", timeout=60) as answer:
                counts = json.loads(answer.read())["counts"]
        finally:
            server.send_signal(signal.SIGINT)
    assert counts["jobs"]["ended"] == 2 and counts["models"] == 3 and counts["edge_rounds"] == 21
