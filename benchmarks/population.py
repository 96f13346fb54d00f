"""A million devices of which a thousand train per edge round: what the others cost, on two workers.

    .venv/bin/python benchmarks/population.py [--devices 1000000] [--asked 1000] [--rounds 50]

Runs the preset `million` into a run folder, on random images in place of its data set, and prints

1. seconds from the start of Python until the first edge round is saved, of which that round's training;
2. peak memory of all processes together, taken twice a second: resident, and proportional, which counts once what
   processes share;
3. CPU-seconds per edge round of all processes, those in training (devices train, their chunk is summed), in tests of
   the global model, and the rest, which is what the simulator costs beside them; in the first and the last fifth of
   the rounds, since it must not grow;
4. the same for a network of those asked alone, everyone asked: the rest there is what as many devices cost anyway.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import threading
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from cluster import descendants
from training import cpu_of

from airprune.rounds.experiment import Experiment
from airprune.rounds.training.worker import Job, Worker
from airprune.runs.driver import records_of
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.simulation import Environment


@dataclass(frozen=True, kw_only=True)
class ClockedJob(Job):
    """Workers that note the CPU-seconds they have spent in training and in tests, each in a file of its own."""

    notes: Path

    def open(self, folder: Path | None) -> Worker:
        worker, notes, spent = super().open(folder), self.notes, {"train": 0.0, "evaluate": 0.0}

        def clocked(name: str) -> Any:
            work = getattr(worker, name)

            def timed(*arguments: Any) -> Any:
                start = time.process_time()
                try:
                    return work(*arguments)
                finally:
                    spent[name] += time.process_time() - start
                    partial = notes / f"{os.getpid()}.partial"
                    partial.write_text(" ".join(map(repr, spent.values())))
                    partial.replace(notes / f"{os.getpid()}.spent")

            return timed

        for name in spent:
            setattr(worker, name, clocked(name))
        return worker


class ClockedExperiment(Experiment):
    """As any experiment, with such workers; NOTES is where they note it."""

    notes: Path

    def job(self, dataset: Any) -> ClockedJob:
        job = super().job(dataset)
        return ClockedJob(**{field.name: getattr(job, field.name) for field in fields(job)}, notes=self.notes)


def noted(notes: Path) -> np.ndarray:
    """CPU-seconds in training and in tests so far, of all workers."""
    rows = [list(map(float, file.read_text().split())) for file in notes.glob("*.spent")]
    return np.sum(rows, axis=0) if rows else np.zeros(2)


def seconds_since_start() -> float:
    """Since this process began, imports included."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class Memory(threading.Thread):
    """The largest sums over this process and its children, in MB; and what looking costs, in CPU-seconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.resident = self.proportional = self.cpu_s = 0.0
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.5):
            found = [_memory_mb(pid) for pid in descendants([os.getpid()])]
            self.resident = max(self.resident, sum(resident for resident, _ in found))
            self.proportional = max(self.proportional, sum(proportional for _, proportional in found))
            self.cpu_s = time.thread_time()

    def stop(self) -> None:
        self._end.set()
        self.join()


def _memory_mb(pid: int) -> tuple[float, float]:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        kilobytes = {line.split(":")[0]: float(line.split()[1]) for line in lines[1:]}
        return kilobytes["Rss"] / 1024, kilobytes["Pss"] / 1024
    return 0.0, 0.0


def images(count: int, num_test: int) -> Any:
    rng = np.random.default_rng(0)
    x = rng.random((count + num_test, 1, 28, 28), dtype=np.float32)
    x.flags.writeable = False
    y = rng.integers(10, size=len(x))
    return (x[:count], y[:count]), (x[count:], y[count:])


def scenario_of(devices: int, asked: int, rounds: int, workers: int, changes: list[str]) -> Scenario:
    base = Scenario.preset("million").with_overrides(changes)
    edges = base.network.num_edges
    return base.with_values(
        {
            "network.devices_per_edge": devices // edges,
            "selection.random-share.share": asked / devices,
            "rounds.global_rounds": rounds // int(base.rounds.edge_rounds),
            "engine.workers": workers,
        }
    )


def measure(scenario: Scenario, samples: int, *, tells_start: bool) -> None:
    memory = Memory()
    with tempfile.TemporaryDirectory() as place:
        notes = Path(place) / "notes"
        notes.mkdir()
        ClockedExperiment.notes = notes
        if tells_start:
            memory.start()
        experiment = ClockedExperiment.of(scenario, dataset=images(samples, 2_000))
        spent: list[np.ndarray] = []  # after each edge round: all CPU of the driver and of workers, training, tests
        before = None
        for record in records_of(experiment, RunFolder(Path(place) / "run"), Environment()):
            if record["kind"] != "edge":
                continue
            workers = [pid for pid in descendants([os.getpid()]) if pid != os.getpid()]
            now = np.array([time.process_time() - memory.cpu_s, cpu_of(workers), *noted(notes)])
            if before is None and tells_start:
                first_s = seconds_since_start()
                print(
                    f"start: {first_s:.1f} s until the first edge round of {record['num_samples']:,} samples was "
                    f"saved, {now[2]:.1f} CPU-s of training in it; {now[0] + now[1]:.1f} CPU-s in all",
                    flush=True,
                )
            if before is not None:
                spent.append(now - before)
            before = now
        if tells_start:
            memory.stop()
            print(
                f"peak memory of all processes: {memory.resident:,.0f} MB resident, "
                f"{memory.proportional:,.0f} MB if what they share counts once"
            )
            size = (Path(place) / "run" / "records.jsonl").stat().st_size
            print(f"records: {size / 1e6:.2f} MB for {len(spent) + 1} edge rounds")
    tell(scenario, np.array(spent))


def tell(scenario: Scenario, spent: np.ndarray) -> None:
    def line(rows: np.ndarray) -> str:
        driver, workers, training, tests = rows.mean(axis=0)
        rest = driver + workers - training - tests
        return (
            f"{driver + workers:.3f} CPU-s: training {training:.3f}, tests {tests:.3f}, beside them {rest:.3f} "
            f"(driver {driver:.3f})"
        )

    fifth = max(len(spent) // 5, 1)
    print(f"{scenario.num_devices:,} devices, per edge round: {line(spent)}")
    if len(spent) >= 10:
        print(f"  first {fifth} rounds after the first: {line(spent[:fifth])}")
        print(f"  last {fifth} rounds: {line(spent[-fifth:])}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--asked", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--samples", type=int, default=50_000, help="in the pool that devices draw from")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("changes", nargs="*", help="of the preset, as key=value")
    options = parser.parse_args()
    sizes = (options.rounds, options.workers, options.changes)
    measure(scenario_of(options.devices, options.asked, *sizes), options.samples, tells_start=True)
    measure(scenario_of(options.asked, options.asked, *sizes), options.samples, tells_start=False)
