"""What a Dask cluster costs beside the work, measured on this machine with two workers.

    .venv/bin/python benchmarks/cluster.py

1. The paper's workload: wall time of an edge round on a cluster of its own against the `processes` engine, their rounds
   taken in turn so that other load on the machine meets both.
2. What travels between driver and cluster per edge round, for 5 edges with more and more devices.
3. 10,000 devices with 20 samples each: CPU of driver, scheduler and workers per device and round, beside what the
   `serial` engine needs; and the driver's memory from round to round.

Images are random (speed does not depend on them), so no data set is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training import cpu_of, images

from airprune.data.shared import share
from airprune.engines.base import Engine
from airprune.engines.cluster.engine import DaskEngine
from airprune.engines.processes import ProcessesEngine
from airprune.engines.serial import SerialEngine
from airprune.rounds.experiment import Experiment
from airprune.runs import InProcess
from airprune.scenario import Scenario
from airprune.simulation import run_rounds

AIRPRUNE = str(Path(sys.executable).with_name("airprune"))


def experiment(
    num_edges: int, num_devices: int, samples: int, rounds: int, *, batch_size: int = 128, model: str = "paper-cnn"
) -> Experiment:
    scenario = Scenario().with_values(
        {
            "network.num_edges": num_edges,
            "network.devices_per_edge": num_devices // num_edges,
            "model.name": model,
            "train.local_epochs": 1,
            "train.batch_size": batch_size,
            "plan.deadline_s": 0.030 if num_devices <= 25 else 1000.0,
            "rounds.global_rounds": 1,
            "rounds.edge_rounds": rounds,
            "rounds.evaluate_every": "never",
        }
    )
    return Experiment.of(scenario, dataset=images(num_devices, samples))


def paper_workload(rounds: int) -> None:
    """Two engines alive at a time, each idle while the other works."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        one = experiment(5, 25, 2000, rounds + 1)
        job = one.job(share(one.dataset, folder))
        seconds = {}
        records = {}
        for name, kind in (("processes", ProcessesEngine), ("dask", DaskEngine)):
            engine = stack.enter_context(kind(job, workers=2))
            records[name] = run_rounds(one, engine, one.initial_state())
            next(records[name])
            seconds[name] = []
        for _ in range(rounds):
            for name in seconds:
                start = time.monotonic()
                next(records[name])
                seconds[name].append(time.monotonic() - start)
    ratio = sum(seconds["dask"]) / sum(seconds["processes"])
    for name, times in seconds.items():
        print(f"{name:10} {sum(times) / rounds:6.2f} s per edge round of 25 devices × 2,000 samples, 2 workers")
    print(f"dask / processes: {ratio:.3f} on the wall")


@contextlib.contextmanager
def cluster() -> Iterator[tuple[str, tuple[int, int]]]:
    """(scheduler file, pids of the scheduler and of the workers' parent): all processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "scheduler.json")
        scheduler = subprocess.Popen([AIRPRUNE, "cluster", "scheduler", "--port", "0", "--scheduler-file", file])
        while not Path(file).exists():
            time.sleep(0.1)
        workers = subprocess.Popen([AIRPRUNE, "cluster", "worker", file, "--workers", "2"])
        try:
            yield file, (scheduler.pid, workers.pid)
        finally:
            for process in (workers, scheduler):
                process.terminate()
                process.wait()


def descendants(pids: list[int]) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = list(pids)
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def traffic() -> int:
    """Bytes that this process has sent and received on its TCP connections, from the kernel's books."""
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as line:
                if line.family in (socket.AF_INET, socket.AF_INET6) and line.type == socket.SOCK_STREAM:
                    info = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
                    total += sum(struct.unpack_from("=QQ", info, 120))  # bytes acked, bytes received
        except OSError:
            continue
    return total


def memory_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def driver_traffic(scheduler: str) -> None:
    for num_devices in (25, 250, 2_500):
        with tempfile.TemporaryDirectory() as folder:
            one = experiment(5, num_devices, 20, 3, batch_size=20, model="mlp")
            with DaskEngine(one.job(share(one.dataset, folder)), scheduler=scheduler) as engine:
                records = run_rounds(one, engine, one.initial_state())
                next(records)
                before = traffic()
                next(records)
                next(records)
                moved = (traffic() - before) / 2
        model_bytes = one.model.num_state * 4
        print(
            f"{num_devices:6,} devices on 5 edges: {moved / 1e6:.2f} MB between driver and cluster per edge round "
            f"({2 * 5 * model_bytes / 1e6:.2f} MB are the 5 models there and back); one model per device would be "
            f"{num_devices * model_bytes / 1e6:,.0f} MB"
        )


@dataclass(frozen=True)
class Cost:
    """Per edge round, after one to warm up; `memory_mb` is this process's after each round."""

    driver_s: float
    scheduler_s: float
    workers_s: float
    wall_s: float
    memory_mb: list[float]

    @property
    def cpu_s(self) -> float:
        return self.driver_s + self.scheduler_s + self.workers_s


def cost_of(engine: Engine, one: Experiment, pids: tuple[int, ...], rounds: int) -> Cost:
    """`pids` are the scheduler and the workers' parent, if there are any."""
    records = run_rounds(one, engine, one.initial_state())
    next(records)

    def clocks() -> list[float]:
        return [time.process_time(), *(cpu_of(descendants([pid])) for pid in pids), time.monotonic()]

    before, memory = clocks(), []
    for _ in range(rounds):
        next(records)
        memory.append(memory_mb())
    spent = [(after - start) / rounds for after, start in zip(clocks(), before, strict=True)]
    driver, *others, wall = spent
    scheduler, workers = others or (0.0, 0.0)
    return Cost(driver, scheduler, workers, wall, memory)


def many_tiny_devices(
    file: str, pids: tuple[int, ...], num_devices: int, num_edges: int, *, samples: int = 20, rounds: int = 4
) -> None:
    one = experiment(num_edges, num_devices, samples, rounds + 1, batch_size=20, model="mlp")
    with SerialEngine(one.job(InProcess(one.dataset))) as engine:
        alone = cost_of(engine, one, (), rounds)
    with (
        tempfile.TemporaryDirectory() as folder,
        DaskEngine(one.job(share(one.dataset, folder)), scheduler=file) as engine,
    ):
        cost = cost_of(engine, one, pids, rounds)

    def ms(seconds: float) -> str:
        return f"{1e3 * seconds / num_devices:.3f}"

    print(
        f"{num_devices:,} devices × {samples} samples on {num_edges} edges, CPU-ms per device and round: "
        f"serial {ms(alone.cpu_s)}; cluster {ms(cost.cpu_s)} (workers {ms(cost.workers_s)}, scheduler "
        f"{ms(cost.scheduler_s)}, driver {ms(cost.driver_s)}), overhead {ms(cost.cpu_s - alone.cpu_s)}; "
        f"{cost.wall_s:.1f} s on the wall; driver's memory after each round "
        + ", ".join(f"{value:.0f}" for value in cost.memory_mb)
        + " MB"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="100,000 devices with 4 samples each as well")
    parser.add_argument("--only", choices=["paper", "traffic", "tiny", "large"])
    options = parser.parse_args()
    if options.only in (None, "paper"):
        paper_workload(options.rounds)
    if options.only in (None, "traffic", "tiny", "large"):
        with cluster() as (file, processes):
            if options.only in (None, "traffic"):
                driver_traffic(file)
            if options.only in (None, "tiny"):
                for devices, edges in [(2_500, 10), (10_000, 10), (10_000, 100)]:
                    many_tiny_devices(file, processes, devices, edges)
            if options.large or options.only == "large":
                many_tiny_devices(file, processes, 100_000, 100, samples=4, rounds=options.rounds)
