"""The work that engines spread: chunks of devices to train, parts of the test set to judge.

A chunk is a fixed run of devices of one edge, decided by the scenario alone. Its masked sum is taken in device order
where the chunk is trained; chunks are merged in order. So every engine, with any number of workers, adds the same
numbers in the same order and ends in the same bits.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import cloudpickle
import numpy as np
import torch
from torch.nn import functional as F

from airprune.data import Dataset
from airprune.learning.aggregate import MaskedSum
from airprune.learning.evaluate import evaluate
from airprune.learning.trainer import LocalResult, LocalSettings, Trainer, tensor_of
from airprune.models import FlatModel
from airprune.randomness import NumberedStreams, rng_for

Array = np.ndarray

# A chunk trains about this many samples: a tenth of a second, long against the cost of handing it out.
CHUNK_SAMPLES = 500
MAX_CHUNK_DEVICES = 64
TEST_PART = 1_000


class DatasetSource(Protocol):
    def open(self) -> Dataset: ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything a worker must know before the first round; small, since the data set is only pointed to.

    Attributes:
      module: the model, pickled by value so that classes of a user's script reach the workers.
      dataset: anything whose `open()` gives the `Dataset`: in a worker process, a map of shared files.
      samples: the training samples of each device.
    """

    module: bytes
    prunable: tuple[str, ...]
    float64: bool
    dataset: DatasetSource
    samples: tuple[Array, ...]
    settings: LocalSettings
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainChunk:
    """Some devices of one edge in one edge round."""

    received: Array
    devices: tuple[int, ...]
    keep: tuple[int, ...]
    weights: tuple[float, ...]
    learning_rate: float
    global_round: int
    edge_round: int


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceStatistics:
    """What is recorded of each trained device, in the order of the devices.  Each [num_devices]"""

    device: Array
    uploaded_weights: Array
    loss: Array
    num_samples: Array
    gradient_sq_max: Array
    gradient_noise_sq: Array
    smoothness: Array
    pruning_error_sq: Array

    @classmethod
    def joined(cls, parts: Sequence[DeviceStatistics]) -> DeviceStatistics:
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeSum:
    """The masked sum of a chunk, or of all chunks of an edge, and its devices' statistics."""

    masked_sum: MaskedSum
    statistics: DeviceStatistics

    @classmethod
    def joined(cls, parts: Iterable[EdgeSum]) -> EdgeSum:
        """The parts merged in order, one at a time; the first one's sum is used up."""
        parts = iter(parts)
        first = next(parts)
        statistics = [first.statistics]
        for part in parts:
            first.masked_sum.merge(part.masked_sum)
            statistics.append(part.statistics)
        return cls(masked_sum=first.masked_sum, statistics=DeviceStatistics.joined(statistics))


class Worker:
    """Does the work of one process."""

    def __init__(self, job: Job) -> None:
        keep_large_buffers()
        dataset = job.dataset.open()
        self.job = job
        self.model = FlatModel(cloudpickle.loads(job.module), prunable=job.prunable, float64=job.float64)
        self.trainer = Trainer(self.model, dataset.train_x, dataset.train_y, job.settings)
        self.test_x, self.test_y = tensor_of(dataset.test_x), tensor_of(dataset.test_y)
        buffers = self.model.module.buffers()
        self._counters = [(counter, counter.clone()) for counter in buffers if not counter.is_floating_point()]

    def train(self, chunk: TrainChunk) -> EdgeSum:
        """Steps 5–9 of Algorithm 1 for the chunk's devices, and their part of the sums of Eq. (12)."""
        masked_sum = MaskedSum.zeros(self.model.num_state, self.model.prunable)
        rows: list[tuple[Any, ...]] = []
        for result, device, weight in zip(self._trained(chunk), chunk.devices, chunk.weights, strict=True):
            masked_sum.add(result.state, result.mask, weight)
            kept = self.model.fc_weights if result.mask is None else int(np.count_nonzero(result.mask))
            rows.append(
                (
                    device,
                    self.model.conv_weights + kept,
                    result.loss,
                    result.num_samples,
                    result.gradient_sq_max,
                    result.gradient_noise_sq,
                    result.smoothness,
                    result.pruning_error_sq,
                )
            )
        names = [f.name for f in fields(DeviceStatistics)]
        columns = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
        return EdgeSum(masked_sum=masked_sum, statistics=DeviceStatistics(**columns))

    def _trained(self, chunk: TrainChunk) -> Iterator[LocalResult]:
        """Each device as if it were the first of its process: its own random streams, no trace of those before it.

        Torch's stream feeds layers that draw, such as Dropout; whoever else draws from it here finds it untouched.
        """
        place = (chunk.global_round, chunk.edge_round)
        streams = NumberedStreams(self.job.seed, "device", *place)
        layer_seeds = rng_for(self.job.seed, "layers", *place).integers(2**63, size=len(self.job.samples)).tolist()
        with torch.random.fork_rng(devices=[]):
            for device, keep in zip(chunk.devices, chunk.keep, strict=True):
                torch.default_generator.manual_seed(layer_seeds[device])
                for counter, start in self._counters:
                    counter.copy_(start)
                yield self.trainer.train(
                    chunk.received,
                    keep=keep,
                    samples=self.job.samples[device],
                    rng=streams[device],
                    learning_rate=chunk.learning_rate,
                )

    def evaluate(self, task: tuple[Array, int]) -> tuple[float, int]:
        """(Σ loss, correct) of a state on the test samples from `start`, at most TEST_PART of them."""
        state, start = task
        self.model.load(state)
        part = slice(start, start + TEST_PART)
        return evaluate(self.model, self.test_x[part], self.test_y[part])

    def test_gradient(self, task: tuple[Array, int]) -> Array:
        """Σ of the loss gradients at a state over test samples from `start`: a part of ∇F(w_q) of Theorem 1."""
        state, start = task
        self.model.load(state)
        self.model.module.eval()
        self.model.gradient.zero_()
        part = slice(start, start + TEST_PART)
        x, y = self.test_x[part].to(self.model.state.dtype), self.test_y[part]
        F.cross_entropy(self.model.module(x), y, reduction="sum").backward()
        return self.model.gradient.numpy().astype(np.float64)


def chunks_of(devices: Array, samples_per_device: float) -> list[Array]:
    """Consecutive runs of an edge's devices, as many as make a chunk's worth of samples."""
    size = int(np.clip(round(CHUNK_SAMPLES / max(samples_per_device, 1.0)), 1, MAX_CHUNK_DEVICES))
    return [devices[start : start + size] for start in range(0, len(devices), size)]


def single_thread() -> None:
    """One thread per process: two processes of one thread beat one of two, and bits do not depend on cores."""
    torch.set_num_threads(1)


def keep_large_buffers() -> None:
    """Lets the C library reuse the megabyte buffers of activations instead of returning them after every step.

    Saves the page faults of fresh memory, about a tenth of the training time; without glibc it does nothing.
    """
    mmap_threshold, trim_threshold = -3, -1
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 32 * 2**20)
        libc.mallopt(trim_threshold, 256 * 2**20)
    except (OSError, AttributeError):
        pass


def worker_environment() -> dict[str, str]:
    """For worker processes: one thread each, and modules found where this process finds them."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    modules = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return {**os.environ, **single, "PYTHONPATH": modules}
