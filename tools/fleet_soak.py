"""A fleet at work for some minutes: jobs, kills, growth, deliveries. Does anything grow, is anything lost?

Cloud, two edges and their devices are processes as a user starts them. Again and again a job is submitted, a node is
killed (kill -9) in the middle of it and started again, and the job's folder is replayed: it must end in the same bytes.
In between a device is added and an earlier one removed, a device moves to the other edge, a model is delivered.

Any node may be killed in the first quarter, the warm-up, and after the last reading; between them the cloud, one edge
and one device are spared, and what they hold between jobs must stay as it is (`tools.growth` has the rule). Exit status
1 if anything grew or was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tools import growth

import airprune as ap
from airprune.cli import main as airprune
from airprune.deployment.fleet.service import STATUS_FILE, registry_of, runs_folder
from airprune.deployment.identity import load_members, make_federation
from airprune.deployment.status import read_status_file
from support.lab import free_ports
from support.tiny import final_bytes

SMALL = (
    "data.train_samples=120",
    "data.test_samples=40",
    "radio.bandwidth_hz=2e7",
    "rounds.global_rounds=2",
    "rounds.edge_rounds=2",
    "engine.name=serial",
)
PATIENT = ("--plan-with", "network", "--grace", "60", "--patience", "120")
SPARED = ("cloud", "e0", "d0")
READINGS = 16
WARM_UP_SHARE = 0.25
SETTLED_S = 2.0
PATIENCE_S = 600.0
KEPT_FOLDERS = 6
MAX_ADDED = 2


class Lost(Exception):
    """Something did not happen in time."""


@dataclass
class FleetSoak:
    """A fleet, what was done with it, and what was wrong."""

    folder: Path
    rng: random.Random
    pause_s: float
    counts: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    held: dict[str, list[growth.Reading]] = field(default_factory=lambda: {name: [] for name in SPARED})
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    cpu_s: Counter[str] = field(default_factory=Counter)

    @property
    def kits(self) -> Path:
        return self.folder / "kits"

    @property
    def state(self) -> Path:
        return self.kits / "cloud/state"

    def say(self, words: str) -> None:
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {words}\n")

    def start(self, name: str) -> None:
        role = {"c": "serve", "e": "edge", "d": "device"}[name[0]]
        options = ["--authority", str(self.kits)] if role == "serve" else []
        command = [sys.executable, "-m", "airprune", "deploy", role, str(self.kits / name), *options]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """kill -9."""
        self._note_cpu(name)
        self.processes[name].kill()
        self.processes[name].wait()
        self.counts[f"kills of {dict(c='the cloud', e='edges', d='devices')[name[0]]}"] += 1

    def _note_cpu(self, name: str) -> None:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self.processes[name].pid).cpu_times()
            self.cpu_s[name[0]] += times.user + times.system

    def command(self, *words: object) -> str:
        """Runs a command of `airprune deploy` in this process; returns what it prints."""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            status = airprune(["deploy", *map(str, words)])
        if status != 0:
            raise Lost(f"deploy {words[0]} ended with {status}: {err.getvalue()}")
        return out.getvalue()

    def wait_for(self, condition, what: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise Lost(f"{name} has ended with {process.returncode}: {self.log(name)[-600:]}")
            if time.monotonic() > end_s:
                raise Lost(f"not within {PATIENCE_S:g} s: {what}")
            time.sleep(0.2)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_online(self) -> None:
        """Until all members are online at home, and no others."""
        members = load_members(self.kits / "cloud")
        wanted = {device: edge for edge, devices in members.devices.items() for device in devices}

        def are_there() -> bool:
            status = read_status_file(self.state / STATUS_FILE)
            if status is None or status.is_stale():
                return False
            online = {node.name: node.edge for node in status.nodes if node.online and node.role == "device"}
            return online == wanted and status.online("edge") == len(members.edges)

        self.wait_for(are_there, f"{sorted(wanted)} are online at home")

    # What happens

    def job(self, spared: tuple[str, ...]) -> None:
        """A job in which a node is killed, and its replay."""
        number = int(self.command("submit", self.kits / "cloud", "deployed", *SMALL, f"seed={self.rng.randrange(99)}",
                                  *PATIENT))  # fmt: skip
        registry = registry_of(self.state)
        self.wait_for(lambda: registry.job(number).state != "queued", f"job {number} begins")
        victims = [name for name in self.processes if name not in spared]
        if victims and self.rng.random() < 0.8:
            time.sleep(self.rng.uniform(0.0, 3.0))
            name = self.rng.choice(victims)
            self.kill(name)
            self.start(name)
            self.say(f"job {number}: killed {name}")
        self.wait_for(lambda: registry.job(number).state in ("ended", "failed", "stopped"), f"job {number} ends")
        self.counts["jobs"] += 1
        if registry.job(number).state != "ended":
            self.findings[f"job {number} has {registry.job(number).state}: {registry.job(number).reason}"] += 1
            return
        self._replay(runs_folder(self.state) / registry.job(number).folder_name)
        self._deliver(number)

    def _replay(self, run: Path) -> None:
        again = self.folder / "replayed" / run.name
        for _ in ap.run(ap.Scenario.load(str(run / "scenario.toml")), out=again, replay=run):
            pass
        if final_bytes(again) == final_bytes(run):
            self.counts["jobs replayed to the same bytes"] += 1
            self.say(f"{run.name} is replayed to the same bytes")
            remove(again)
            for old in sorted(run.parent.iterdir())[:-KEPT_FOLDERS]:
                remove(old)
        else:
            self.findings[f"{run.name} is not replayed to its bytes"] += 1

    def _deliver(self, number: int) -> None:
        if self.rng.random() < 0.25:
            self.command("deliver", self.kits / "cloud", number)
            self.counts["models delivered"] += 1

    def grow(self) -> None:
        """Adds a device, removes the oldest one that was added, or moves one."""
        chance = self.rng.random()
        if chance < 0.3:
            kit = self.command("add", "device", self.kits, "--edge", self.rng.choice(["e0", "e1"])).strip()
            name = Path(kit).name
            self.added.append(name)
            self.start(name)
            self.counts["devices added"] += 1
            if len(self.added) > MAX_ADDED:
                self._remove(self.added.pop(0))
        elif chance < 0.5:
            members = load_members(self.kits / "cloud")
            device = "d1"
            home = next(edge for edge, devices in members.devices.items() if device in devices)
            self.command("move", self.kits, device, "e1" if home == "e0" else "e0")
            self.counts["devices moved"] += 1
        self.wait_online()

    def _remove(self, name: str) -> None:
        process = self.processes.pop(name)
        self.command("remove", self.kits, name)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            self.findings[f"{name} was removed and went on"] += 1
        self.counts["devices removed"] += 1

    def read(self, at_s: float) -> None:
        time.sleep(SETTLED_S)
        devices = load_members(self.kits / "cloud").devices
        for name in SPARED:
            pid, num_links = self.processes[name].pid, len(devices.get(name, ()))
            self.held[name].append(growth.reading(pid, at_s=at_s, num_links=num_links))

    def run(self, minutes: float) -> None:
        begun_s, span_s = time.monotonic(), 60.0 * minutes
        first_port = free_ports(9_300, 3)
        make_federation(self.kits, num_edges=2, devices_per_edge=3, first_port=first_port)
        for name in ("cloud", "e0", "e1", *load_members(self.kits / "cloud").all_devices):
            self.start(name)
        readings = [begun_s + span_s * (WARM_UP_SHARE + (1 - WARM_UP_SHARE) * n / READINGS) for n in range(READINGS)]
        while (now_s := time.monotonic()) < begun_s + span_s:
            self.grow()
            if readings and now_s >= readings[0]:
                self.read(now_s - begun_s)
                readings = [due_s for due_s in readings if due_s > now_s]
            is_read = now_s > begun_s + WARM_UP_SHARE * span_s - 60.0 and bool(readings)
            self.job(SPARED if is_read else ())
            time.sleep(self.pause_s)

    def stop(self) -> None:
        for name, process in self.processes.items():
            self._note_cpu(name)
            process.send_signal(signal.SIGINT)
        for name, process in self.processes.items():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                self.findings[f"{name} did not end within 60 s after Ctrl-C"] += 1
            if "Traceback" in self.log(name):
                said = self.log(name)
                self.findings[f"{name}: {said.count('Traceback')} tracebacks, the last: {said[-600:]}"] += 1


def remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def soaked(minutes: float, seed: int, pause_s: float, folder: Path) -> FleetSoak:
    soak = FleetSoak(folder, random.Random(seed), pause_s)
    try:
        soak.run(minutes)
    except (Lost, ap.AirpruneError, KeyboardInterrupt) as error:
        soak.findings[str(error) or "interrupted"] += 1
    finally:
        soak.stop()
    for name, readings in soak.held.items():
        if len(readings) > 1:
            soak.findings.update(growth.findings(name, readings))
    return soak


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/soak fleet", description=__doc__.splitlines()[0])
    parser.add_argument("minutes", type=float, help="how long, e.g. 60; memory is judged from 7 minutes on")
    parser.add_argument("--seed", type=int, default=0, help="of what is done, in which order and when")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between jobs")
    parser.add_argument("--folder", type=Path, help="of the fleet, to be kept  [default: a temporary one]")
    wanted = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # a job in the background of a shell ignores it
    if not 0.0 < wanted.minutes < 100_000.0:
        parser.error(f"MINUTES must be from 0 to 100000, got {wanted.minutes}; example: scripts/soak fleet 60")
    with contextlib.ExitStack() as stack:
        folder = wanted.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleet-soak-")))
        soak = soaked(wanted.minutes, wanted.seed, wanted.pause, folder)
    counts = ", ".join(f"{number:,} {what}" for what, number in sorted(soak.counts.items()))
    sys.stdout.write(f"{wanted.minutes:g} minutes, seed {wanted.seed}: {counts}.\n")
    cpu = ", ".join(f"{dict(c='cloud', e='edges', d='devices')[role]} {s:.0f} s" for role, s in soak.cpu_s.items())
    sys.stdout.write(f"CPU: {cpu}.\n")
    for who, readings in soak.held.items():
        if readings:
            sys.stdout.write(f"{growth.table(who, readings)} in {len(readings)} readings\n")
            memory = " ".join(f"{one.memory_bytes / growth.MIB:.1f}" for one in readings)
            sys.stdout.write(f"        MiB at each reading: {memory}\n")
    for finding, times in soak.findings.items():
        sys.stdout.write(f"FINDING {finding}{f' ({times} times)' if times > 1 else ''}\n")
    sys.stdout.write(f"{len(soak.findings)} findings.\n")
    sys.exit(1 if soak.findings else 0)


if __name__ == "__main__":
    main()
