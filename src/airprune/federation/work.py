"""The work that engines spread: chunks of devices to train, parts of the test set to judge.

A chunk is a fixed run of devices of one edge, decided by the scenario alone. Its masked sum is taken in device order
where the chunk is trained; chunks are merged in order into groups, and groups into the edge's sum. So every engine,
with any number of workers, adds the same numbers in the same order and ends in the same bits.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

import cloudpickle
import numpy as np
import torch
from torch.nn import functional as F

from airprune.data import Dataset
from airprune.data.shared import SharedDataset
from airprune.engines.base import MAX_TRIES, Died, Group, Task, Workshop
from airprune.errors import AirpruneError, WorkFailed
from airprune.learning.aggregate import MaskedSum
from airprune.learning.evaluate import evaluate
from airprune.learning.trainer import LocalResult, LocalSettings, Trainer, tensor_of
from airprune.models import FlatModel
from airprune.pruning.coverage import Coverage, coverage_of
from airprune.randomness import NumberedStreams, rng_for

Array = np.ndarray

# A chunk trains about this many samples: a tenth of a second, long against the cost of handing it out.
CHUNK_SAMPLES = 500
MAX_CHUNK_DEVICES = 64
TEST_PART = 1_000


class DatasetSource(Protocol):
    def open(self) -> Dataset: ...


@dataclass(frozen=True, kw_only=True)
class Job(Workshop):
    """Everything a worker must know before the first round; small, since the data set is only pointed to.

    Attributes:
      module: the model, pickled by value so that classes of a user's script reach the workers.
      dataset: anything whose `open()` gives the `Dataset`: in a worker process, a map of shared files.
      samples: the training samples of each device.
      drop_failing: whether a device whose training fails `MAX_TRIES` times is left out; else it ends the run.
    """

    module: bytes
    prunable: tuple[str, ...]
    float64: bool
    dataset: DatasetSource
    samples: tuple[Array, ...]
    settings: LocalSettings
    seed: int
    drop_failing: bool = False
    folder: Path | None = None

    def open(self, folder: Path | None) -> Worker:
        if isinstance(self.dataset, SharedDataset) and folder is not None:
            return Worker(replace(self, dataset=replace(self.dataset, folder=folder)))
        return Worker(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainChunk(Task):
    """Some devices of one edge in one edge round."""

    devices: tuple[int, ...]
    keep: tuple[int, ...]
    weights: tuple[float, ...]
    learning_rate: float
    global_round: int
    edge_round: int

    def parts(self) -> list[TrainChunk]:
        return [self.of([device]) for device in self.devices]

    def without(self, parts: Sequence[TrainChunk]) -> TrainChunk:
        gone = {device for part in parts for device in part.devices}
        return self.of(device for device in self.devices if device not in gone)

    def of(self, devices: Iterable[int]) -> TrainChunk:
        """The same chunk with only these of its devices."""
        places = [self.devices.index(device) for device in devices]
        return replace(
            self,
            devices=tuple(self.devices[i] for i in places),
            keep=tuple(self.keep[i] for i in places),
            weights=tuple(self.weights[i] for i in places),
        )


@dataclass(frozen=True)
class Failure:
    """A device whose training failed every time, and the last traceback, or what became of the worker."""

    device: int
    trouble: str


class DeviceFailed(WorkFailed):
    """A device failed for good and the scenario's policy is to end the run."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(
            f"Device {failure.device} failed {MAX_TRIES} times; "
            f'engine.on_device_failure="drop-device" goes on without it. The last failure:\n{failure.trouble}'
        )
        self.failure = failure

    def __reduce__(self) -> tuple[type, tuple[Failure]]:
        return DeviceFailed, (self.failure,)


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
    def of(cls, rows: Sequence[tuple[Any, ...]]) -> DeviceStatistics:
        """From one row per device, in the order of the fields."""
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(fields(cls)))
        columns = {field.name: column for field, column in zip(fields(cls), table.T, strict=True)}
        for name in ("device", "uploaded_weights", "num_samples"):
            columns[name] = columns[name].astype(np.int64)
        return cls(**columns)

    @classmethod
    def joined(cls, parts: Sequence[DeviceStatistics]) -> DeviceStatistics:
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeSum:
    """The masked sum of a chunk, or of several chunks of an edge, and its devices' statistics and failures."""

    masked_sum: MaskedSum
    statistics: DeviceStatistics
    failures: tuple[Failure, ...] = ()

    @classmethod
    def joined(cls, parts: Iterable[EdgeSum]) -> EdgeSum:
        """The parts merged in order, one at a time; the first one's sum is used up."""
        parts = iter(parts)
        first = next(parts)
        statistics, failures = [first.statistics], [*first.failures]
        for part in parts:
            first.masked_sum.merge(part.masked_sum)
            statistics.append(part.statistics)
            failures += part.failures
        joined = DeviceStatistics.joined(statistics)
        return cls(masked_sum=first.masked_sum, statistics=joined, failures=tuple(failures))

    def average(self, received: Array) -> EdgeAverage:
        return EdgeAverage(
            state=self.masked_sum.mean(received),
            coverage=coverage_of(self.masked_sum.kept_by, self.masked_sum.all_count),
            statistics=self.statistics,
            failures=self.failures,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeAverage:
    """What one edge round makes of an edge: its new model, Eq. (12), and what is recorded."""

    state: Array
    coverage: Coverage
    statistics: DeviceStatistics
    failures: tuple[Failure, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeWork(Group):
    """One edge round of one edge: `shared` is the model its devices receive, the tasks are chunks of them."""

    prunable: slice
    drop_failing: bool
    method: str = "train"

    @staticmethod
    def merge(parts: Iterable[EdgeSum]) -> EdgeSum:
        return EdgeSum.joined(parts)

    def finish(self, part: EdgeSum) -> EdgeAverage:
        return part.average(self.shared)

    def lost(self, parts: Sequence[TrainChunk], how: str) -> EdgeSum:
        sentence = f"{Died(how).on('the same devices')} The run can be resumed."
        if not self.drop_failing:
            raise WorkFailed(sentence)
        return EdgeSum(
            masked_sum=MaskedSum.zeros(len(self.shared), self.prunable),
            statistics=DeviceStatistics.of([]),
            failures=tuple(Failure(device, sentence) for part in parts for device in part.devices),
        )


class Worker:
    """Does the work of one process."""

    def __init__(self, job: Job) -> None:
        dataset = job.dataset.open()
        self.job = job
        self.model = FlatModel(cloudpickle.loads(job.module), prunable=job.prunable, float64=job.float64)
        self.trainer = Trainer(self.model, dataset.train_x, dataset.train_y, job.settings)
        self.test_x, self.test_y = tensor_of(dataset.test_x), tensor_of(dataset.test_y)
        buffers = self.model.module.buffers()
        self._counters = [(counter, counter.clone()) for counter in buffers if not counter.is_floating_point()]

    def train(self, received: Array, chunk: TrainChunk) -> EdgeSum:
        """Steps 5–9 of Algorithm 1 for the chunk's devices, and their part of the sums of Eq. (12)."""
        masked_sum = MaskedSum.zeros(self.model.num_state, self.model.prunable)
        rows: list[tuple[Any, ...]] = []
        failures = []
        for device, weight, result in zip(chunk.devices, chunk.weights, self._trained(received, chunk), strict=True):
            if isinstance(result, Failure):
                failures.append(result)
                continue
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
        return EdgeSum(masked_sum=masked_sum, statistics=DeviceStatistics.of(rows), failures=tuple(failures))

    def _trained(self, received: Array, chunk: TrainChunk) -> Iterator[LocalResult | Failure]:
        """Each device as if it were the first of its process: its own random streams, no trace of those before it.

        Torch's stream feeds layers that draw, such as Dropout; whoever else draws from it here finds it untouched.
        """
        place = (chunk.global_round, chunk.edge_round)
        streams = NumberedStreams(self.job.seed, "device", *place)
        layer_seeds = rng_for(self.job.seed, "layers", *place).integers(2**63, size=len(self.job.samples)).tolist()
        with torch.random.fork_rng(devices=[]):
            for device, keep in zip(chunk.devices, chunk.keep, strict=True):
                for tries_left in reversed(range(MAX_TRIES)):
                    torch.default_generator.manual_seed(layer_seeds[device])
                    for counter, start in self._counters:
                        counter.copy_(start)
                    try:
                        result: LocalResult | Failure = self.trainer.train(
                            received,
                            keep=keep,
                            samples=self.job.samples[device],
                            rng=streams[device],
                            learning_rate=chunk.learning_rate,
                        )
                        break
                    except AirpruneError:
                        raise
                    except Exception as error:
                        result = Failure(device, "".join(traceback.format_exception(error)).rstrip())
                        if not tries_left and not self.job.drop_failing:
                            raise DeviceFailed(result) from error
                yield result

    def evaluate(self, state: Array, start: int) -> tuple[float, int]:
        """(Σ loss, correct) of a state on the test samples from `start`, at most TEST_PART of them."""
        self.model.load(state)
        part = slice(start, start + TEST_PART)
        return evaluate(self.model, self.test_x[part], self.test_y[part])

    def test_gradient(self, state: Array, start: int) -> Array:
        """Σ of the loss gradients at a state over test samples from `start`: a part of ∇F(w_q) of Theorem 1."""
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
