"""Training speed beside a plain torch loop on the same work, in one run.

    .venv/bin/python benchmarks/training.py

1. Samples per CPU-second, workers included: hierarchical FedAvg of the paper's CNN (25 devices, batch 128), once as a
   plain torch loop on one thread, then in the `processes` engine with two workers, by torch and by the native kernel.
   Each is also told as a share of what one core does in a large matrix product, with a sample's FLOPs as
   `clock.compute = "flops"` counts them. These are those of the plain algorithm: the native kernel takes gradients back
   only through the winners of the pooling and leaves out what a ReLU has cut off, so its share can exceed 100 %.
2. Samples per second on the wall: the same loop on two threads against the two workers.
3. What the engine costs beside training, and the peak memory, at 2,500 devices with 20 samples each, without pruning
   and with half of the prunable weights pruned. Of whole rounds, three parts are told apart by the thread's CPU clock:
   the probes' gradients; training, which is every other gradient and the optimiser's steps, to which the native
   library's masking of gradients belongs; and the rest, which is beside both: scores, threshold, mask, the masking of
   weights, sums, records and plan. Caches are thus as training leaves them: devices one after the other cost three
   times what they do in rounds whose gradients take no time.
4. The same with top-k updates, without memory and with one of 44 k values per device; and the disk that takes.
5. Other models: an MLP on 2,500 devices with 20 samples each, its devices trained together and one after the other in
   turns, without pruning and with it. `--together [DEVICES]` does this alone.

`--measure` does 1 and 3 for the native kernel alone, in short, 5 as it comes, and partial training (`partial.py`), and
prints JSON: what `scripts/bench` compares.

Images are random, so no data set is needed; with `--data NAME` they are those of one. Speed depends on them by how many
values the first ReLU cuts off, 39 % of random ones and 38 to 44 % of glyphs, and by how much of them is an even
background, which random ones have not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from airprune.data.catalog import DATASETS, load_dataset
from airprune.data.shared import save_shared
from airprune.engines.processes import ProcessesEngine
from airprune.engines.serial import SerialEngine
from airprune.methods.optimisers.sgd import Sgd
from airprune.rounds.experiment import Experiment
from airprune.runs import InProcess
from airprune.runs.driver import opened_store
from airprune.scenario import Scenario
from airprune.simulation import run_rounds
from airprune.wireless.device_speed.flops import count_work

DATA: str | None = None  # a data set of the catalogue, in place of random images


class PlainCNN(nn.Module):
    """The paper's CNN as one would first write it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(3136, 8)
        self.fc2 = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def images(num_devices: int, samples: int):
    count = num_devices * samples
    if DATA is not None:
        found = load_dataset(DATA, train_samples=count, test_samples=100)
        mean, deviation = found.train_x.mean(), found.train_x.std()
        train_x, test_x = ((x - mean) / deviation for x in (found.train_x, found.test_x))
        return (train_x, found.train_y), (test_x, found.test_y)
    rng = np.random.default_rng(0)
    x = rng.random((count, 1, 28, 28), dtype=np.float32)
    x.flags.writeable = False  # then a data set shares the memory instead of copying it
    return (x, rng.integers(0, 10, count)), (x[:100], np.arange(100) % 10)


def plain_loop(num_devices: int, samples: int, rounds: int, batch_size: int = 128) -> int:
    """One edge of FedAvg with state dicts and torch.optim; returns the samples trained on."""
    (x, y), _ = images(num_devices, samples)
    x, y = torch.tensor(x), torch.tensor(y)
    server, device = PlainCNN(), PlainCNN()
    for _ in range(rounds):
        states = []
        for n in range(num_devices):
            device.load_state_dict(server.state_dict())
            optimiser = torch.optim.SGD(device.parameters(), lr=0.01)
            own = torch.arange(n * samples, (n + 1) * samples)
            for batch in own[torch.randperm(samples)].split(batch_size):
                optimiser.zero_grad()
                F.cross_entropy(device(x[batch]), y[batch]).backward()
                optimiser.step()
            states.append({name: value.clone() for name, value in device.state_dict().items()})
        server.load_state_dict({name: sum(s[name] for s in states) / len(states) for name in states[0]})
    return num_devices * samples * rounds


def scenario(num_edges: int, per_edge: int, rounds: int, *, batch_size: int = 128, **changes: object) -> Scenario:
    return Scenario().with_values(
        {
            "network.num_edges": num_edges,
            "network.devices_per_edge": per_edge,
            "train.local_epochs": 1,
            "train.batch_size": batch_size,
            "plan.scheme": "no-pruning",
            "rounds.global_rounds": 1,
            "rounds.edge_rounds": rounds,
            "rounds.evaluate_every": "never",
            **{key.replace("__", "."): value for key, value in changes.items()},
        }
    )


def cpu_of(pids: list[int]) -> float:
    """CPU-seconds of running processes, from the kernel's books."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def roof_flops(tries: int = 12, size: int = 768) -> float:
    """FLOPs per CPU-second of one core in a product of two float32 matrices, the best of some."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    left, right = torch.rand(2, size, size).unbind()
    times_s = []
    for _ in range(tries):
        start = time.thread_time()
        torch.mm(left, right)
        times_s.append(time.thread_time() - start)
    torch.set_num_threads(threads)
    return 2.0 * size**3 / min(times_s)


def sample_flops() -> float:
    """Of one sample, forward and backward."""
    return count_work(PlainCNN(), np.zeros((1, 28, 28), np.float32), ()).flops_per_sample


def pruned_by(ratio: float) -> dict[str, object]:
    """Settings that prune every device by as much."""
    plan = {"plan__scheme": "optimal", "plan__min_pruning_ratio": ratio, "plan__deadline_s": 1e6}
    return dict(plan) if ratio else {}


def in_engine(rounds: int, folder: str, kernel: str = "auto", pruning: float = 0.0) -> tuple[float, float, float]:
    """(samples, CPU-seconds of driver and workers, wall seconds) of `rounds` edge rounds after one to warm up."""
    settings = scenario(5, 5, rounds + 1, train__kernel=kernel, **pruned_by(pruning))
    experiment = Experiment.of(settings, dataset=images(25, 512))
    job = experiment.job(save_shared(experiment.dataset, folder))
    with ProcessesEngine(job, workers=2) as engine:
        pids = [worker.process.pid for worker in engine._processes]
        records = run_rounds(experiment, engine, experiment.initial_state())
        next(records)
        cpu, own, wall = cpu_of(pids), time.process_time(), time.monotonic()
        samples = sum(next(records)["num_samples"] for _ in range(rounds))
        return samples, cpu_of(pids) - cpu + time.process_time() - own, time.monotonic() - wall


def speed(rounds: int) -> None:
    torch.set_num_threads(1)
    flops, roof = sample_flops(), roof_flops()
    print(f"roof: {roof / 1e9:.1f} GFLOP per CPU-second in a matrix product, {flops / 1e6:.1f} MFLOP per sample")
    plain_loop(1, 512, 1)
    start = time.process_time()
    samples = plain_loop(25, 512, rounds)
    plain_cpu = samples / (time.process_time() - start)
    share = plain_cpu * flops / roof
    print(f"plain torch loop, 1 thread: {plain_cpu:,.0f} samples per CPU-second, {share:.0%} of the roof")
    for kernel in ("torch", "auto"):
        with tempfile.TemporaryDirectory() as folder:
            samples, cpu, wall = in_engine(rounds, folder, kernel)
        ours = samples / cpu
        share = ours * flops / roof
        print(f"airprune, kernel {kernel}, 2 workers + driver: {ours:,.0f} = {ours / plain_cpu:.2f} ×, {share:.0%}")
    threads = subprocess.run(
        [sys.executable, __file__, "--two-threads", str(rounds)], capture_output=True, text=True, check=True
    )
    plain_wall, ours_wall = float(threads.stdout), samples / wall
    print(f"plain torch loop, 2 threads: {plain_wall:,.0f} samples per second on the wall")
    print(f"airprune, 2 workers: {ours_wall:,.0f} = {ours_wall / plain_wall:.2f} ×")


def two_threads(rounds: int) -> None:
    torch.set_num_threads(2)
    plain_loop(1, 512, 1)
    start = time.monotonic()
    samples = plain_loop(25, 512, rounds)
    print(samples / (time.monotonic() - start))


def memory_mb(which: str) -> float:
    """Of this process; getrusage would count the process that started it."""
    return int(Path("/proc/self/status").read_text().partition(f"{which}:")[2].split()[0]) / 1024


class Parts(NamedTuple):
    """CPU-ms per device and round: of all, of the probes' gradients, and of what is neither these nor training."""

    whole_ms: float
    probe_ms: float
    beside_ms: float


class TimedGradient:
    """A device's gradient, if it cannot itself tell what it spends: nor can that of older trees."""

    def __init__(self, gradient: Any, spent_s: np.ndarray) -> None:
        self._gradient, self._spent_s = gradient, spent_s

    def _timed(self, what: int, call: Callable[..., Any], *arguments: Any) -> Any:
        start = time.thread_time()
        found = call(*arguments)
        self._spent_s[what] += time.thread_time() - start
        return found

    def __call__(self, batch: np.ndarray) -> float:
        return self._timed(1, self._gradient, batch)

    def of_prunable(self, batch: np.ndarray) -> float:
        return self._timed(0, getattr(self._gradient, "of_prunable", self._gradient), batch)

    def timed_steps(self, begin: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*settings: Any) -> Callable[..., None]:
            step = begin(*settings)
            return lambda *arrays: self._timed(1, step, *arrays)

        return timed


def device_ms(pruning: float, num_devices: int, samples: int, rounds: int = 3) -> Parts:
    """The median of some rounds, part by part."""
    settings = scenario(25, num_devices // 25, rounds + 2, batch_size=20, **pruned_by(pruning))
    experiment = Experiment.of(settings, dataset=images(num_devices, samples))
    begin, spent_s = Sgd.begin, np.zeros(2)  # of probes, of training
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        device = engine._worker.device
        if hasattr(device.gradient, "spent_s"):
            device.gradient.spent_s = spent_s
        else:
            device.gradient = TimedGradient(device.gradient, spent_s)
            Sgd.begin = device.gradient.timed_steps(begin)
        records = run_rounds(experiment, engine, experiment.initial_state())
        next(records)

        def one_round() -> Parts:
            spent_s[:] = 0.0
            start = time.process_time()
            next(records)
            whole_s = time.process_time() - start
            seconds = whole_s, float(spent_s[0]), whole_s - float(spent_s.sum())
            return Parts(*(1e3 * part_s / num_devices for part_s in seconds))

        found = [one_round() for _ in range(rounds)]
        Sgd.begin = begin
    return Parts(*(statistics.median(part) for part in zip(*found, strict=True)))


def overhead(pruning: float, num_devices: int = 2_500, samples: int = 20) -> None:
    """Runs in its own process, so that the peak memory is its own."""
    parts = device_ms(pruning, num_devices, samples)
    print(
        f"{num_devices:,} devices × {samples} samples, pruned {pruning:g}: {parts.whole_ms:.2f} CPU-ms per device and "
        f"round, of which probes {parts.probe_ms:.3f} and beside probes and training {parts.beside_ms:.3f}; "
        f"peak memory {memory_mb('VmHWM'):.0f} MB"
    )


def measure(num_devices: int = 250) -> None:
    """JSON on one line: samples per CPU-second where names say speed, else CPU-ms per device and round."""
    found = {}
    for name, pruning in (("", 0.0), (", pruned 0.5", 0.5)):
        with tempfile.TemporaryDirectory() as folder:
            samples, cpu_s, _ = in_engine(1, folder, pruning=pruning)
        found[f"engine speed{name}"] = samples / cpu_s
        parts = device_ms(pruning, num_devices, 20)
        found[f"small device{name}"], found[f"beside training{name}"] = parts.whole_ms, parts.beside_ms
        found[f"small MLP{name}"] = mlp_ms(pruning)
    import partial  # which takes its images from here

    print(json.dumps({**found, **partial.measure(), "roof, GFLOP per CPU-second, speed": roof_flops() / 1e9}))


def memory(remembers: bool, num_devices: int = 2_500, samples: int = 20) -> None:
    """Runs in its own process; gradients take no time, and are random so that the code has something to choose from.

    What devices remember is committed after every round, as in a run folder.
    """
    compression = {
        "compression__name": "top-k",
        "compression__top-k__share": 0.1,
        "compression__top-k__memory": remembers,
    }
    settings = scenario(25, num_devices // 25, 6, batch_size=20, **compression)
    experiment = Experiment.of(settings, dataset=images(num_devices, samples))
    state, times_ms, resident_mb = experiment.initial_state(), [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine,
    ):
        device = engine._worker.device
        device.model.gradient.copy_(torch.randn(len(device.model.gradient), generator=torch.Generator().manual_seed(0)))
        device.gradient = lambda batch: 0.0
        state.store = opened_store(experiment, Path(folder))
        records = run_rounds(experiment, engine, state)
        for version in range(6):
            start = time.process_time()
            next(records)
            if state.store is not None:
                state.store.commit(version)
                state.store.forget_unnamed()
            times_ms.append(1e3 * (time.process_time() - start) / num_devices)
            resident_mb.append(memory_mb("VmRSS"))
        disk_mb = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6
    after = ", ".join(f"{resident_mb[number - 1]:.0f}" for number in (1, 3, 5))
    print(
        f"{num_devices:,} devices, top-k {'with' if remembers else 'without'} memory: "
        f"{statistics.median(times_ms[1:]):.3f} CPU-ms per device and round beside training; {after} MB resident after "
        f"rounds 1, 3, 5, peak {memory_mb('VmHWM'):.0f} MB; {disk_mb:.0f} MB on disk"
    )


def mlp_on(num_devices: int, samples: int, rounds: int, pruning: float) -> Experiment:
    """Of the MLP by torch, up to 100 devices per edge."""
    per_edge = min(num_devices, 100)
    chosen = {"model__name": "mlp", "train__kernel": "torch", **pruned_by(pruning)}
    settings = scenario(num_devices // per_edge, per_edge, rounds, batch_size=20, **chosen)
    return Experiment.of(settings, dataset=images(num_devices, samples))


def mlp_ms(pruning: float, num_devices: int = 2_500, samples: int = 20, rounds: int = 3) -> float:
    """CPU-ms per device and round of the whole engine, the median of some rounds."""
    torch.set_num_threads(1)
    experiment = mlp_on(num_devices, samples, rounds + 2, pruning)
    times_ms = []
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        records = run_rounds(experiment, engine, experiment.initial_state())
        for _ in range(rounds + 1):
            start = time.process_time()
            next(records)
            times_ms.append(1e3 * (time.process_time() - start) / num_devices)
    return statistics.median(times_ms[1:])  # the first one warms up


def in_turns(num_devices: int = 2_500, samples: int = 20, turns: int = 5) -> None:
    """CPU-ms per device and round of the whole engine, and how many times as fast devices are together."""
    for pruning in (0.0, 0.5):
        experiment = mlp_on(num_devices, samples, 2 * turns + 2, pruning)
        with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
            records = run_rounds(experiment, engine, experiment.initial_state())
            ways = {"together": engine._worker.together, "one after the other": None}
            times_ms: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(turns + 1):
                for name, way in ways.items():
                    engine._worker.together = way
                    start = time.process_time()
                    next(records)
                    times_ms[name].append(1e3 * (time.process_time() - start) / num_devices)
        together_ms, alone_ms = (times[1:] for times in times_ms.values())  # the first ones warm up
        ratios = sorted(alone / ours for alone, ours in zip(alone_ms, together_ms, strict=True))
        print(
            f"MLP, {num_devices:,} devices × {samples} samples, pruned {pruning:g}, CPU-ms per device and round: "
            f"together {statistics.median(together_ms):.3f}, one after the other {statistics.median(alone_ms):.3f}: "
            f"{statistics.median(ratios):.2f} × ({ratios[0]:.2f} to {ratios[-1]:.2f} in {turns} turns)"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--two-threads", type=int)
    parser.add_argument("--overhead", type=float, metavar="PRUNING")
    parser.add_argument("--memory", choices=["with", "without"])
    parser.add_argument("--together", type=int, nargs="?", const=2_500, metavar="DEVICES")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--data", choices=list(DATASETS), metavar="NAME")
    options = parser.parse_args()
    DATA = options.data
    if options.measure:
        measure()
    elif options.together:
        in_turns(options.together)
    elif options.two_threads:
        two_threads(options.two_threads)
    elif options.overhead is not None:
        overhead(options.overhead)
    elif options.memory is not None:
        memory(options.memory == "with")
    else:
        speed(options.rounds)
        for pruning in ("0", "0.5"):
            subprocess.run([sys.executable, __file__, "--overhead", pruning], check=True)
        for remembers in ("without", "with"):
            subprocess.run([sys.executable, __file__, "--memory", remembers], check=True)
        subprocess.run([sys.executable, __file__, "--together"], check=True)
