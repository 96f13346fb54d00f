"""What trains a chunk of devices and judges parts of the test set, in whatever process it lives."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch

from airprune.compression.base import Wire
from airprune.data import Dataset
from airprune.data.shared import SharedDataset
from airprune.engines.base import MAX_TRIES, Workshop
from airprune.errors import AirpruneError
from airprune.federation.device import Device, LocalSettings, Streams, device_round, held_model, round_in_steps
from airprune.federation.messages import Broadcast, Orders, Upload
from airprune.federation.method import LocalMethod
from airprune.federation.personal import put_in
from airprune.kernels import native
from airprune.kernels.autograd import in_precision, tensor_of
from airprune.kernels.devices import Twin, seed_layers
from airprune.learning.chunks import MAX_CHUNK_DEVICES, ChunkSum, DeviceFailed, Failure, TrainTask, chunk_sum
from airprune.learning.evaluate import evaluate, evaluate_natively
from airprune.learning.together import Steps, together
from airprune.losses import CROSS_ENTROPY
from airprune.losses.own import Judged
from airprune.models import FlatModel
from airprune.randomness import rng_for

Array = np.ndarray

TEST_PART = 1_000


@dataclass(frozen=True, kw_only=True)
class Job(Workshop):
    """Everything a worker must know before the first round; small, since the data set is only pointed to.

    Attributes:
      module: the model, pickled by value so that classes of a user's script reach the workers.
      judged: the loss and the metric, likewise.
      dataset: anything whose `open()` gives the `Dataset`: in a worker process, a map of shared files.
      samples: the training samples of each device.
      drop_failing: whether a device whose training fails `MAX_TRIES` times is left out; else it ends the run.
    """

    module: bytes
    prunable: tuple[str, ...]
    personal: tuple[str, ...]
    float64: bool
    dataset: Any
    samples: tuple[Array, ...]
    settings: LocalSettings
    method: LocalMethod
    wire: Wire
    seed: int
    judged: bytes
    drop_failing: bool = False
    folder: Path | None = None
    luggage: bytes | None = None

    def open(self, folder: Path | None) -> Worker:
        dataset = self.dataset
        if isinstance(dataset, SharedDataset) and folder is not None:
            dataset = replace(dataset, folder=folder)
        return Worker(self, dataset.open())


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnTest:
    """A device whose own model is to be judged: its own layers, and its samples of the test set."""

    memory: Mapping[str, Array]
    samples: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldTest:
    """A device whose sub-model of a state is to be judged on the test samples from `start`.

    Attributes:
      told: what the masking told everybody.
      place: of the randomness with which it chooses: global round, edge round.
    """

    orders: Orders
    told: Array | None
    place: tuple[int, int]
    start: int


class Worker:
    """Does the work of one process."""

    def __init__(self, job: Job, dataset: Dataset) -> None:
        self.job = job
        self.model = FlatModel(
            cloudpickle.loads(job.module), prunable=job.prunable, personal=job.personal, float64=job.float64
        )
        self.judged: Judged = cloudpickle.loads(job.judged)
        x, y, place = dataset.train_x, dataset.train_y, job.settings.device
        self.device = Device(self.model, x, y, job.settings, job.method, job.wire, loss=self.judged.loss)
        self.together = together(self.device, MAX_CHUNK_DEVICES)
        self.judge = self.model if place == "cpu" else Twin(self.model, place)
        self.test_x, self.test_y = tensor_of(dataset.test_x), tensor_of(dataset.test_y)
        if isinstance(self.judge, Twin):
            self.test_x, self.test_y = self.test_x.to(self.judge.device), self.test_y.to(self.judge.device)
        test = dataset.test_x, dataset.test_y
        by_kernel = self.judged.loss.name == CROSS_ENTROPY and self.judged.is_accuracy
        fits = by_kernel and job.settings.kernel == "native" and not native.unsupported(self.model, *test)
        self.scores = native.NativeScores(self.model, *test) if fits else None
        buffers = self.model.module.buffers()
        self._counters = [(counter, counter.clone()) for counter in buffers if not counter.is_floating_point()]

    def train(self, received: Broadcast, task: TrainTask) -> ChunkSum:
        """Steps 5–9 of Algorithm 1 for the chunk's devices, and their part of the sums of Eq. (12)."""
        uploads = self._uploads(received, task)
        return chunk_sum(self.job.method.aggregation, self.device.shape, received.model, task, uploads)

    def _uploads(self, received: Broadcast, task: TrainTask) -> Iterator[Upload | Failure]:
        """Each device as if it were the first of its process: its own random streams, no trace of those before it.

        Torch's stream feeds layers that draw, such as Dropout; it is put back for other code of this process.
        """
        place = (task.global_round, task.edge_round)
        streams = Streams(self.job.seed, *place)
        orders = [_orders(task, number) for number in range(len(task.devices))]
        if self.together is not None and len(orders) > 1:
            seats = self.together.num_seats
            for start in range(0, len(orders), seats):
                yield from self._in_step(received, orders[start : start + seats], streams)
            return
        layer_seeds = rng_for(self.job.seed, "layers", *place).integers(2**63, size=len(self.job.samples)).tolist()
        with torch.random.fork_rng(devices=[]):
            for own in orders:
                yield self._alone(received, own, streams, layer_seeds[own.device])

    def _in_step(self, received: Broadcast, orders: Sequence[Orders], streams: Streams) -> Iterator[Upload | Failure]:
        """Of devices that are trained together; nothing in their model draws or counts."""
        assert self.together is not None
        samples = [self.job.samples[own.device] for own in orders]

        def begin(number: int) -> Callable[[Device], Steps]:
            own = samples[number]
            return lambda seat: round_in_steps(seat, received, orders[number], samples=own, streams=streams)

        return self.together.uploads(
            [begin(number) for number in range(len(orders))],
            [len(own) for own in samples],
            lambda number, error: self._failure(orders[number].device, error),
        )

    def _alone(self, received: Broadcast, orders: Orders, streams: Streams, layer_seed: int) -> Upload | Failure:
        samples = self.job.samples[orders.device]
        for tries_left in reversed(range(MAX_TRIES)):
            seed_layers(self.job.settings.device, layer_seed)
            for counter, start in self._counters:
                counter.copy_(start)
            try:
                return device_round(self.device, received, orders, samples=samples, streams=streams)
            except AirpruneError:
                raise
            except Exception as error:
                if not tries_left:
                    return self._failure(orders.device, error)
        raise AssertionError  # a try ends in an upload, a failure or an error

    def _failure(self, device: int, error: Exception) -> Failure:
        """What stands for a device that has failed for good; raises if the run is to end then."""
        failure = Failure(device, "".join(traceback.format_exception(error)).rstrip())
        if not self.job.drop_failing:
            raise DeviceFailed(failure) from error
        return failure

    def evaluate(self, states: Array, start: int) -> tuple[float, float]:
        """(Σ loss, Σ metric) of the mean prediction on the test samples from `start`, at most TEST_PART of them."""
        return self._evaluated(states, slice(start, start + TEST_PART))

    def evaluate_own(self, state: Array, task: OwnTest) -> tuple[float, float]:
        """(Σ loss, Σ metric) of a device's model, made of a common state and its own layers, on its test samples."""
        own = put_in(state, task.memory, self.device.shape)
        return self._evaluated(own[np.newaxis], task.samples)

    def evaluate_held(self, state: Array, task: HeldTest) -> tuple[float, float]:
        """(Σ loss, Σ metric) of what a device holds of a state, on a part of the test samples."""
        held = held_model(
            self.device,
            Broadcast(model=state, mask=task.told),
            task.orders,
            samples=self.job.samples[task.orders.device],
            streams=Streams(self.job.seed, *task.place),
        )
        return self._evaluated(held[np.newaxis], slice(task.start, task.start + TEST_PART))

    def _evaluated(self, states: Array, samples: slice | Array) -> tuple[float, float]:
        """(Σ loss, Σ metric) on some test samples, by the kernel that trains."""
        if self.scores is not None:
            return evaluate_natively(self.model, self.scores, states, samples, self.test_y.numpy()[samples])
        index = torch.from_numpy(samples) if isinstance(samples, np.ndarray) else samples
        return evaluate(self.judge, states, self.test_x[index], self.test_y[index], self.judged)

    def test_gradient(self, state: Array, start: int) -> Array:
        """Σ of the loss gradients at a state over test samples from `start`: a part of ∇F(w_q) of Theorem 1."""
        self.model.load(state)
        self.model.module.eval()
        self.model.gradient.zero_()
        part = slice(start, start + TEST_PART)
        x, y = (in_precision(tensor[part].cpu(), self.model.state.dtype) for tensor in (self.test_x, self.test_y))
        self.judged.loss.sum(self.model.module(x), y).backward()
        return self.model.gradient.numpy().astype(np.float64)


def _orders(task: TrainTask, number: int) -> Orders:
    """Of a device of a chunk."""
    return Orders(
        device=task.devices[number],
        keep=task.keep[number],
        learning_rate=task.learning_rate,
        round_index=task.round_index,
        code=None if task.code is None else task.code[number],
        local_steps=None if task.local_steps is None else task.local_steps[number],
        memory={name: rows[number] for name, rows in task.memory.items()},
    )
