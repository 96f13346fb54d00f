"""The commands of docs/deploy.md as it gives them: one empty folder per machine, real processes, real TLS."""

import contextlib
import json
import re
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from tools.readme import _split as split

from airprune.deployment.about import read_about
from airprune.runs.layout import RunFolder
from airprune.runs.measured import read_measured
from support.docs_blocks import blocks
from support.lab import free_ports
from support.processes import AIRPRUNE

PAGE = Path(__file__).parents[2] / "docs/deploy.md"
NUM_SAMPLES = 40
# What makes the page's run a short one, in which no upload is late on a busy machine.
SMALL = ["rounds.global_rounds=1", "rounds.edge_rounds=1", "data.train_samples=80", "data.test_samples=40"]
SMALL += ["--grace", "60"]
WITHIN_S = 150


class Machines:
    """The block "Three machines by hand": its commands, and what each machine's command did.

    A machine is a folder; the page names it in `scp … MACHINE:kit` and behind its command.
    """

    def __init__(self, folder: Path, **replaced: str) -> None:
        """`replaced`: by machine, another command than the block's."""
        (block,) = (block.content for block in blocks(PAGE.read_text()) if "airprune deploy cloud" in block.content)
        self._folder = folder
        (init,) = re.findall(r"^airprune (deploy init .+)$", block, re.MULTILINE)
        # Addresses of the page's own network do not exist here.
        init = re.sub(r"(--host \w+)=[\d.]+", r"\1=127.0.0.1", init)
        desk = self.machine("desk")
        port = str(free_ports(9380, 2))
        done = subprocess.run([AIRPRUNE, *shlex.split(init), "--port", port], cwd=desk, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for kit, machine in re.findall(r"scp -rp (\S+) (\w+):kit", block):
            shutil.copytree(desk / kit, self.machine(machine) / "kit")
        found = re.findall(r"^airprune (deploy (?:cloud|edge|device) .+?) +# (\w+)$", block, re.MULTILINE)
        self.commands = {machine: shlex.split(command) for command, machine in found}
        self.commands |= {machine: shlex.split(command)[1:] for machine, command in replaced.items()}
        self.commands["server"] += SMALL

    def machine(self, name: str) -> Path:
        (self._folder / name).mkdir(exist_ok=True)
        return self._folder / name

    def run(self) -> dict[str, tuple[int, str]]:
        """All at once; (exit status, stderr) by machine."""
        with contextlib.ExitStack() as stack:
            running = {}
            for name, command in self.commands.items():
                with (self._folder / f"{name}.log").open("w") as log:
                    process = subprocess.Popen(
                        [AIRPRUNE, *command], cwd=self.machine(name), stdout=subprocess.DEVNULL, stderr=log
                    )
                running[name] = stack.enter_context(process)
                stack.callback(process.kill)
            end_s = time.monotonic() + WITHIN_S
            for process in running.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, end_s - time.monotonic()))
                if process.returncode:  # the others would wait for it
                    break
            return {name: (process.poll(), self.said(name)) for name, process in running.items()}

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def again(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The cloud's command once more, without edges and devices."""
        command = [AIRPRUNE, *self.commands["server"], *words]
        return subprocess.run(command, cwd=self.machine("server"), capture_output=True, text=True, timeout=WITHIN_S)

    @property
    def lab(self) -> RunFolder:
        return RunFolder(self.machine("server") / "runs/lab")


def commands_by_hand() -> list[str]:
    """The commands of the page that the tests of pages do not run."""
    found = [block for block in blocks(PAGE.read_text()) if block.kind == "bash" and not block.is_run]
    return [command for block in found for command in split(block.content)]


def of_the_three_machines() -> list[str]:
    (block,) = (block for block in blocks(PAGE.read_text()) if "airprune deploy cloud" in block.content)
    return split(block.content)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    made = Machines(tmp_path_factory.mktemp("machines"))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_SAMPLES, 1, 28, 28)).astype(np.float32)
    np.savez(made.machine("pi") / "samples.npz", x=x, y=rng.integers(0, 10, NUM_SAMPLES))
    made.ended = made.run()
    return made


def test_the_three_commands_of_the_page_run_to_their_end_in_empty_folders(machines):
    assert list(machines.commands) == ["server", "gateway", "pi"]
    for name, (status, said) in machines.ended.items():
        assert status == 0, (name, said)
        assert "Traceback" not in said
    assert machines.lab.is_finished
    assert [row.fate for row in read_measured(machines.lab)] == ["ok"]
    assert read_about(machines.lab)["num_samples"] == [NUM_SAMPLES]


def test_a_deployment_that_has_ended_gets_its_missing_model_back_without_any_device(machines):
    final = machines.lab.final_file
    trained = final.read_bytes()
    final.unlink()
    final.mkdir()
    refused = machines.again("--resume")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        "error: runs/lab/final.safetensors is a folder, where the run writes a file; delete it, then resume."
    )
    final.rmdir()
    assert machines.again("--resume").returncode == 0
    assert final.read_bytes() == trained


@pytest.mark.parametrize("words", [[], ["--what-if", "plan.deadline_s=2"]])
def test_samples_of_a_devices_own_cannot_be_replayed_and_nothing_is_written(machines, words, command):
    out = machines.machine("server") / "again"
    status, _, err = command("run", "--replay", machines.lab.path, *words, "--out", out)
    assert status == 2 and not out.exists()
    assert err.splitlines()[-1] == (
        f"error: {machines.lab.path} was trained on samples of its devices' own (40 of device 0, to which the scenario "
        "assigns 80), so it cannot be simulated here; `airprune deploy verify` repeats its sums."
    )


def test_a_run_folder_that_cannot_be_made_is_refused_before_any_device_is_waited_for(machines):
    (machines.machine("server") / "taken").write_text("")
    begun_s = time.monotonic()
    refused = machines.again("--out", "taken/lab")
    assert refused.returncode == 2 and time.monotonic() - begun_s < 60  # it would wait for ten minutes
    assert refused.stderr.splitlines()[-1].startswith("error: taken/lab cannot be used as a run folder: ")
    assert "Traceback" not in refused.stderr


def test_the_progress_of_a_deployment_calls_its_times_planned(machines):
    said = machines.said("server")
    assert re.search(r"· planned \d+\.\d\d s ·", said) and "simulated" not in said


KEEPING = "airprune deploy edge kit --keep-uploads"
DEMOS = ("airprune deploy demo", "airprune deploy demo --unequal")
ELSEWHERE = ("pip install -c constraints.txt '.[deploy]'", "scp -rp lab/d0 pi@192.168.1.20:kit")


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """All other commands of the page, where its words say: in the folder with the run. What each has printed."""
    made = Machines(tmp_path_factory.mktemp("followed"), gateway=KEEPING, pi="airprune deploy device kit")
    for name, (status, said) in made.run().items():
        assert status == 0, (name, said)
    desk = made.machine("evening")  # the edge's kit and the cloud's folder, side by side
    shutil.copytree(made.machine("gateway") / "kit", desk / "kit")
    shutil.copytree(made.machine("server") / "runs", desk / "runs")
    done_before = {*of_the_three_machines(), KEEPING, *DEMOS, *ELSEWHERE}
    printed = {}
    for command in commands_by_hand():
        if command not in done_before:
            printed[command] = served(command, desk) if " web " in command else said_by(command, desk)
    return printed


def said_by(command: str, folder: Path) -> str:
    words = [AIRPRUNE, *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=WITHIN_S)
    assert command.startswith("airprune ") and done.returncode == 0, (command, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def served(command: str, folder: Path) -> str:
    """What the page Deployment is sent for the only deployment in the folder; Ctrl-C ends the server."""
    with subprocess.Popen(
        [AIRPRUNE, *shlex.split(command)[1:], "--port", "0"], cwd=folder, stdout=subprocess.PIPE
    ) as server:
        try:
            address = server.stdout.readline().decode().split("?")[0].strip().rstrip("/")
            with urllib.request.urlopen(f"{address}/api/deployment?of=lab", timeout=60) as answer:
                return answer.read().decode()
        finally:
            server.send_signal(signal.SIGINT)


def test_every_command_of_the_page_is_run(followed):
    assert set(ELSEWHERE) < set(commands_by_hand()) and set(DEMOS) < set(commands_by_hand())
    assert len(followed) == 6 and len(of_the_three_machines()) == 5, list(followed)


def test_what_the_page_says_about_a_run_that_has_ended_is_what_its_commands_print(followed):
    status = followed["airprune deploy status runs/lab"]
    assert "1 edge round; uploads: 1 ok, 0 late, 0 dropped, 0 failed, 0 refused." in status
    assert (
        "Simulate it: airprune run runs/lab/scenario.toml"
        in followed["airprune deploy calibrate runs/lab --out lab.csv"]
    )
    replayed = followed["airprune run --replay runs/lab"]
    assert "Bit for bit: records and final model are those of runs/lab." in replayed
    shown = json.loads(followed["airprune web runs"])
    assert shown["counts"]["uploads"]["ok"] == 1 and shown["status"]["state"] == "ended"
    verified = json.loads(followed["airprune deploy verify runs/lab --edge e0=kit --json"])
    assert len(verified["rounds"]) == 1 and verified["num_wrong"] == 0 and not verified["not_verified"]


@pytest.mark.slow
@pytest.mark.parametrize("command", DEMOS)
def test_the_demos_of_the_page_end_in_the_simulations_bits_in_an_empty_folder(command, tmp_path):
    words = [AIRPRUNE, *shlex.split(command)[1:], "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    runs = found if isinstance(found, list) else [found]
    assert len(runs) == (1 if "--unequal" in command else 2)
    assert all(run["same_model"] and run["same_records"] for run in runs), runs
