"""Memory and CPU of a fleet on this machine, while it waits for jobs and in the rounds of a job.

    .venv/bin/python benchmarks/fleet.py [--devices 100 --edges 4 --idle 60 --rounds 6]

Cloud (`deploy serve`) and edges are processes as a user starts them. Devices are processes without torch, forked from
one that has imported what a device needs, which saves the CPU of starting them; they train the paper's CNN on ten
samples each. CPU is user and system time of a process; memory is its resident set (RSS), and for devices also the
proportional set size (PSS), in which pages that all of them share count once.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from airprune.cli import main as airprune
from airprune.deployment.identity import load_members, make_federation
from airprune.deployment.status import read_status_file

FIRST_PORT = 9_750
PATIENCE_S = 1_200.0
FORK_DEVICES = """
import os, sys
sys.modules["torch"] = None
import airprune.deployment.device, airprune.cli.deploy.nodes
from airprune.cli import main
for kit in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        os.close(1)
        os._exit(main(["deploy", "device", kit]))
    print(pid, flush=True)
os.close(1)
for _ in sys.argv[1:]:
    os.wait()
"""
JOB = (
    "data.train_samples={samples}", "data.test_samples=40", "radio.bandwidth_hz=1e8", "rounds.global_rounds={rounds}",
    "rounds.edge_rounds=2", "engine.name=serial", "--plan-with", "network", "--grace", "120", "--patience", "120",
)  # fmt: skip


class Fleet:
    """Processes by role, and what they have used."""

    def __init__(self, folder: Path, num_edges: int, num_devices: int) -> None:
        self.kits, self.log = folder / "kits", (folder / "log").open("ab")
        sizes = [num_devices // num_edges + (n < num_devices % num_edges) for n in range(num_edges)]
        make_federation(self.kits, num_edges=num_edges, devices_per_edge=sizes, first_port=FIRST_PORT)
        self.members = load_members(self.kits / "cloud")
        self.started: list[subprocess.Popen[bytes]] = []
        cloud = self._start("-m", "airprune", "deploy", "serve", self.kits / "cloud")
        edges = [self._start("-m", "airprune", "deploy", "edge", self.kits / edge) for edge in self.members.edges]
        kits = [self.kits / device for device in self.members.all_devices]
        forking = self._start("-c", FORK_DEVICES, *kits, stdout=subprocess.PIPE)
        assert forking.stdout is not None
        devices = [int(line) for line in forking.stdout]
        self.pids = {"cloud": [cloud.pid], "edge": [edge.pid for edge in edges], "device": devices}

    def _start(self, *words: object, **options: int) -> subprocess.Popen[bytes]:
        streams = {"stdout": self.log, "stderr": self.log, **options}
        self.started.append(subprocess.Popen([sys.executable, *map(str, words)], **streams))  # type: ignore[call-overload]
        return self.started[-1]

    def is_online(self) -> bool:
        status = read_status_file(self.kits / "cloud/state/status.json")
        return status is not None and status.online("device") == len(self.members.all_devices)

    def submit(self, *words: str) -> Path:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert airprune(["deploy", "submit", str(self.kits / "cloud"), "deployed", *words]) == 0
        return self.kits / f"cloud/state/runs/job-{int(out.getvalue()):04d}-deployed"

    def cpu_s(self) -> dict[str, list[float]]:
        return {role: [_cpu_s(pid) for pid in pids] for role, pids in self.pids.items()}

    def stop(self) -> None:
        for pid in [*self.pids["device"], *(process.pid for process in self.started)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for process in self.started:
            process.wait()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int, file: str, word: str) -> float:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(word)) / 1e3


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end_s:
            raise SystemExit(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.2)


def show(fleet: Fleet, before: dict[str, list[float]], *, per: float, unit: str) -> None:
    """Prints the CPU of each role since `before` as mean and largest, and its memory."""
    for role, after in fleet.cpu_s().items():
        used_ms = [1e3 * (b - a) / per for a, b in zip(before[role], after, strict=True)]
        rss = [_memory_mb(pid, "status", "VmRSS") for pid in fleet.pids[role]]
        pss = [_memory_mb(pid, "smaps_rollup", "Pss:") for pid in fleet.pids[role]]
        print(
            f"{role:<7} × {len(after):<4} CPU {statistics.mean(used_ms):8.1f} ms {unit} (most {max(used_ms):.1f}), "
            f"RSS {statistics.median(rss):6.1f} MB, PSS {statistics.median(pss):6.1f} MB, all PSS {sum(pss):,.0f} MB"
        )


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def measure(fleet: Fleet, idle_s: float, rounds: int) -> None:
    num_devices = len(fleet.members.all_devices)
    wait_for(fleet.is_online, "all devices are online")
    time.sleep(5.0)
    print(f"1 cloud, {len(fleet.members.edges)} edges, {num_devices} devices; idle for {idle_s:g} s:")
    before, begun_s = fleet.cpu_s(), time.monotonic()
    time.sleep(idle_s)
    show(fleet, before, per=(time.monotonic() - begun_s) / 60.0, unit="a minute")
    run = fleet.submit(*(word.format(samples=10 * num_devices, rounds=rounds) for word in JOB))
    measured = run / "measured.jsonl"
    wait_for(lambda: num_lines(measured) >= 2 * num_devices, "the first global round")
    before, done = fleet.cpu_s(), num_lines(measured) / num_devices
    wait_for((run / "final.safetensors").exists, "the job ends")
    rows = [json.loads(line) for line in measured.read_text().splitlines()]
    came = sum(row["fate"] == "ok" for row in rows)
    time.sleep(5.0)  # nodes give free memory back when a job has ended
    print(f"an edge round of all devices ({came} of {2 * rounds * num_devices} uploads in time):")
    show(fleet, before, per=2 * rounds - done, unit="a round")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--edges", type=int, default=4)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds without a job")
    parser.add_argument("--rounds", type=int, default=6, help="global rounds of two edge rounds each")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder), options.edges, options.devices)
        try:
            measure(fleet, options.idle, options.rounds)
        finally:
            fleet.stop()


if __name__ == "__main__":
    main()
