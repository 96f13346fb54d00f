"""Times a scenario's model on this machine, with the kernel that a run would use."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.engines.machine import num_cores
from airprune.models.kernels import KERNELS
from airprune.models.layout import LocalModel
from airprune.randomness import rng_for
from airprune.runs.environment import environment
from airprune.scenario import Scenario
from airprune.scenario.data import entry_of
from airprune.wireless.device_speed.profile import Profile, Timing

if TYPE_CHECKING:
    from airprune.rounds.experiment import Experiment

_FEWEST = 3
# For an estimate beforehand.
_GLANCE_S = 0.2
_GLANCED_SAMPLES = 512
_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")


def profile_of(experiment: Experiment, *, seconds: float) -> Profile:
    """Times one thread, then torch on all of them; the native kernel has one thread only."""
    ways = [(experiment.kernel, 1)]
    if num_cores() > 1:
        ways.append(("torch", num_cores()))
    timings = [_timing(experiment, kernel, threads, seconds=seconds / len(ways)) for kernel, threads in ways]
    return Profile(
        model=experiment.scenario.model.name,
        machine=str(environment()["cpu"]),
        batch_size=_batch_size(experiment),
        seconds_per_sample=min(timing.median_s for timing in timings),
        at_hz=clock_hz(),
        flops_per_sample=experiment.work.flops_per_sample,
        timings=tuple(timings),
    )


def seconds_per_sample(scenario: Scenario) -> float | None:
    """Estimates the CPU time of one sample, forward and backward, of a scenario's model; None if it cannot be timed.

    On noise of the data set's shape, so that no file is read, by one device that stands for all.
    """
    from airprune.rounds.experiment import Experiment

    entry = entry_of(scenario)
    rng = rng_for(0, "profile")
    x = rng.standard_normal((_GLANCED_SAMPLES, *entry.feature_shape), dtype=np.float32)
    y = np.arange(_GLANCED_SAMPLES) % entry.num_classes
    lone = {"network.num_edges": 1, "network.devices_per_edge": 1, "rounds.edge_rounds": 1, "engine.name": "serial"}
    with contextlib.suppress(Exception):  # whatever cannot be timed can still be run
        small = Scenario().with_values({**lone, "model": scenario.model, "train": scenario.train})
        experiment = Experiment.of(small, dataset=((x, y), (x, y)))
        timing = _timing(experiment, experiment.kernel, 1, seconds=_GLANCE_S)
        return min(timing.cpu_s, timing.low_s)  # beside other work even CPU time is longer
    return None


def _batch_size(experiment: Experiment) -> int:
    return min(experiment.scenario.train.batch_size, len(experiment.dataset.train_y))


def _timing(experiment: Experiment, kernel: str, threads: int, *, seconds: float) -> Timing:
    """Times random minibatches until the time is up."""
    data, size = experiment.dataset, _batch_size(experiment)
    on = {"loss": experiment.criteria.loss, "device": experiment.device}
    model = experiment.model if kernel == experiment.kernel else _in_torch(experiment)
    gradient = KERNELS[kernel].build(model, data.train_x, data.train_y, **on)
    rng = rng_for(experiment.scenario.seed, "profile")
    wall_s: list[float] = []
    with _threads(threads):
        gradient(rng.permutation(len(data.train_y))[:size])  # warm: caches, allocator, code paths
        start, start_cpu = time.perf_counter(), time.process_time()
        last = start
        while len(wall_s) < _FEWEST or last - start < seconds:
            gradient(rng.integers(len(data.train_y), size=size))
            wall_s.append(time.perf_counter() - last)
            last = time.perf_counter()
        cpu_s = (time.process_time() - start_cpu) / (len(wall_s) * size)
    low, median, high = (np.quantile(wall_s, (0.25, 0.5, 0.75)) / size).tolist()
    return Timing(
        kernel=kernel,
        threads=threads,
        minibatches=len(wall_s),
        median_s=median,
        low_s=low,
        high_s=high,
        cpu_s=cpu_s,
    )


def _in_torch(experiment: Experiment) -> LocalModel:
    from airprune.models.catalogue import FlatModel

    settings = experiment.scenario.model
    module = experiment.source.module()
    return FlatModel(module, prunable=settings.prunable, personal=settings.personal, float64=settings.float64)


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    """Sets the number of torch's threads, if the kernel has imported it."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def clock_hz() -> float | None:
    """Returns the CPU's clock as the system reports it, right after work; None where it does not."""
    try:
        return float(_FREQUENCY.read_text()) * 1e3
    except (OSError, ValueError):
        pass
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return max(float(line.split(":")[1]) * 1e6 for line in lines if line.startswith("cpu MHz"))
    except (OSError, ValueError, IndexError):
        return None
