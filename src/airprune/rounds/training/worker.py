"""The worker: trains chunks of devices and evaluates parts of the test set, in any process."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from airprune.data import Dataset, Holdings
from airprune.data.shared import SharedDataset
from airprune.engines.base import MAX_TRIES, WorkerFactory
from airprune.errors import AirpruneError, NotFinite
from airprune.methods.compression.base import Wire
from airprune.randomness import WholeNumbers
from airprune.rounds.attacks import Attack, collusion, honest_update, with_update
from airprune.rounds.device import device_round, held_model, round_in_steps
from airprune.rounds.local import Device, LocalSettings, Streams, minibatches
from airprune.rounds.messages import NOTHING, Broadcast, Orders, Upload
from airprune.rounds.method import LocalMethod
from airprune.rounds.model_source import ModelSource
from airprune.rounds.sending import with_own_layers
from airprune.rounds.sums import ChunkSum, Failure, chunk_sum
from airprune.rounds.training.at_once import train_at_once
from airprune.rounds.training.chunks import MAX_CHUNK_DEVICES, DeviceFailed, TrainTask
from airprune.rounds.training.evaluator import Evaluator, evaluator_for
from airprune.rounds.training.observed import DeviceTrace
from airprune.rounds.training.together import Steps, together

Array = np.ndarray

TEST_PART = 1_000


@dataclass(frozen=True, kw_only=True)
class Job(WorkerFactory):
    """Everything a worker must know before the first round; small, since the data set is only pointed to.

    Attributes:
      model: where it comes from.
      criteria: the loss and the metric, pickled by value so that functions of a user's script reach the workers.
      dataset: anything whose `open()` gives the `Dataset`: in a worker process, a map of shared files.
      samples: the training samples of each device.
      drop_failing: whether a device whose training fails `MAX_TRIES` times is excluded; else it ends the run.
      attack: of the attackers among the devices, if there are any.
    """

    model: ModelSource
    dataset: Any
    samples: Holdings
    settings: LocalSettings
    method: LocalMethod
    wire: Wire
    seed: int
    criteria: bytes
    drop_failing: bool = False
    folder: Path | None = None
    setup_payload: bytes | None = None
    attack: Attack | None = None

    def open(self, folder: Path | None) -> Worker:
        dataset = self.dataset
        if isinstance(dataset, SharedDataset) and folder is not None:
            dataset = replace(dataset, folder=folder)
        return Worker(self, dataset.open())


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnTest:
    """A device whose own model is to be evaluated: its own layers, and its samples of the test set."""

    memory: Mapping[str, Array]
    samples: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldTest:
    """A device whose sub-model of a state is to be evaluated on the test samples from `start`.

    Attributes:
      shared: what the masking prepared for all devices.
      place: of the randomness with which it chooses: global round, edge round.
    """

    orders: Orders
    shared: Array | None
    place: tuple[int, int]
    start: int


class Worker:
    """Does the work of one process."""

    def __init__(self, job: Job, dataset: Dataset) -> None:
        self.job = job
        model, settings, criteria = job.model.open(), job.settings, cloudpickle.loads(job.criteria)
        x, y = dataset.train_x, dataset.train_y
        self.device = Device(model, x, y, settings, job.method, job.wire, loss=criteria.loss)
        self.together = together(self.device, MAX_CHUNK_DEVICES)
        self._streams_of: tuple[int, ...] | None = None
        self._streams: tuple[Streams, WholeNumbers]
        self.evaluator: Evaluator = evaluator_for(
            model, dataset.test_x, dataset.test_y, criteria, kernel=settings.kernel, device=settings.device
        )

    def train(self, received: Broadcast, task: TrainTask) -> ChunkSum:
        """Steps 5–9 of Algorithm 1 for the chunk's devices, and their part of the sums of Eq. (12)."""
        streams, _ = self._randomness(task.global_round, task.edge_round)
        stack = None if self.together is None else self.together.stack
        if not self._attackers(task):
            samples = self.job.samples
            done = train_at_once(self.device, received.model, task, samples=samples, streams=streams, stack=stack)
            if done is not None:
                return done
        return self._sum(received, task, self._uploads(received, task))

    def trace(self, received: Broadcast, task: TrainTask) -> tuple[ChunkSum, list[DeviceTrace]]:
        """`train`, never at once, and what every device did that has an upload."""
        seen: list[DeviceTrace] = []
        return self._sum(received, task, self._copied(self._uploads(received, task), task, seen)), seen

    def _sum(self, received: Broadcast, task: TrainTask, uploads: Iterator[Upload | Failure]) -> ChunkSum:
        return chunk_sum(self.job.method.aggregation, self.device.shape, received.model, task, uploads)

    def _copied(
        self, uploads: Iterator[Upload | Failure], task: TrainTask, seen: list[DeviceTrace]
    ) -> Iterator[Upload | Failure]:
        """Passes uploads on and appends a copy of each to `seen`: the next device may overwrite it."""
        streams = Streams(self.job.seed, task.global_round, task.edge_round)
        for number, upload in enumerate(uploads):
            if not isinstance(upload, Failure):
                device, orders = task.devices[number], _orders(task, number)
                own, rng = self.job.samples[device], streams.batches.at(device)
                batches = minibatches(self.job.settings, orders.local_steps, own, rng)
                seen.append(DeviceTrace.of(device, task.weights[number], upload, batches, self.device.shape))
            yield upload

    def _attackers(self, task: TrainTask) -> list[int]:
        """Returns the devices of a chunk that send something else than they have trained."""
        attack = self.job.attack
        return attack.among(task.devices) if attack is not None and attack.replaces else []

    def _uploads(self, received: Broadcast, task: TrainTask) -> Iterator[Upload | Failure]:
        """Yields what each device of a chunk sends; attackers replace what they have trained."""
        attack, attackers, prunable = self.job.attack, self._attackers(task), self.device.shape.prunable
        if attack is None or not attackers:
            yield from self._honest_uploads(received, task)
            return
        common = self._collusion(attack, received, task, attackers[0]) if attack.colluders else None
        for device, upload in zip(task.devices, self._honest_uploads(received, task), strict=True):
            if device not in attackers or isinstance(upload, Failure):
                yield upload
                continue
            update = common
            if update is None:
                honest = honest_update(upload, received.model, prunable)
                update = attack.update_sent(honest, device, (task.global_round, task.edge_round))
            yield with_update(upload, received.model, update, prunable)

    def _collusion(self, attack: Attack, received: Broadcast, task: TrainTask, device: int) -> Array:
        """Returns the update that all colluders send: they train on each other's data first, with one's orders."""
        orders = _orders(task, task.devices.index(device))
        streams, layer_seeds = self._randomness(task.global_round, task.edge_round)
        honest: list[Array] = []
        with self.device.model.own_randomness():
            for colluder in attack.colluders:
                upload = self._alone(received, orders._replace(device=colluder), streams, layer_seeds)
                if not isinstance(upload, Failure):
                    honest.append(honest_update(upload, received.model, self.device.shape.prunable))
        return collusion(honest, attack.strength) if honest else np.zeros(len(received.model))

    def _honest_uploads(self, received: Broadcast, task: TrainTask) -> Iterator[Upload | Failure]:
        """Yields each device's upload as if it were the first of its process: nothing of earlier devices is left.

        Layers that draw, such as Dropout, have a stream of their own, too.
        """
        streams, layer_seeds = self._randomness(task.global_round, task.edge_round)
        orders = [_orders(task, number) for number in range(len(task.devices))]
        if self.together is not None and len(orders) > 1:
            seats = self.together.num_seats
            for start in range(0, len(orders), seats):
                yield from self._in_step(received, orders[start : start + seats], streams)
            return
        with self.device.model.own_randomness():
            for own in orders:
                yield self._alone(received, own, streams, layer_seeds)

    def _randomness(self, *place: int) -> tuple[Streams, WholeNumbers]:
        """Returns the random streams of devices, and of layers that draw, in one edge round; made once for all chunks.

        Making them costs as much as twenty devices, and a device's stream is always given from its start.
        """
        if self._streams_of != place:
            self._streams_of = place
            self._streams = Streams(self.job.seed, *place), WholeNumbers(self.job.seed, "layers", *place)
        return self._streams

    def _in_step(self, received: Broadcast, orders: Sequence[Orders], streams: Streams) -> Iterator[Upload | Failure]:
        """Trains devices together; nothing in their model draws or counts."""
        assert self.together is not None
        samples = [self.job.samples[own.device] for own in orders]

        def begin(number: int, seat: Device) -> Steps:
            return round_in_steps(seat, received, orders[number], samples=samples[number], streams=streams)

        return self.together.uploads(
            begin,
            [len(own) for own in samples],
            lambda number, error: self._failure(orders[number].device, error),
        )

    def _alone(
        self, received: Broadcast, orders: Orders, streams: Streams, layer_seeds: WholeNumbers
    ) -> Upload | Failure:
        samples = self.job.samples[orders.device]
        for tries_left in reversed(range(MAX_TRIES)):
            self.device.model.start_afresh(lambda: layer_seeds[orders.device], self.job.settings.device)
            try:
                return device_round(self.device, received, orders, samples=samples, streams=streams)
            except NotFinite as error:
                return self._failure(orders.device, error)
            except AirpruneError:
                raise
            except Exception as error:
                if not tries_left:
                    return self._failure(orders.device, error)
        raise AssertionError  # a try ends in an upload, a failure or an error

    def _failure(self, device: int, error: Exception) -> Failure:
        """Returns what stands for a device that has failed for good; raises if the run is to end at once."""
        if isinstance(error, NotFinite):
            return Failure(device, str(error), diverged=True)
        failure = Failure(device, "".join(traceback.format_exception(error)).rstrip())
        if not self.job.drop_failing:
            raise DeviceFailed(failure) from error
        return failure

    def evaluate(self, states: Array, start: int) -> tuple[float, float]:
        """Returns (Σ loss, Σ metric) of the mean prediction on at most TEST_PART test samples from `start`."""
        return self.evaluator.total(states, slice(start, start + TEST_PART))

    def predict(self, states: Array, start: int) -> Array:
        """The models' mean prediction for the same samples, for a loss or metric that must see all at once."""
        return self.evaluator.outputs(states, slice(start, start + TEST_PART))

    def evaluate_own(self, state: Array, task: OwnTest) -> tuple[float, float]:
        """Returns (Σ loss, Σ metric) of a device's model, a common state with its own layers, on its test samples."""
        own = with_own_layers(state, task.memory, self.device.shape)
        return self.evaluator.total(own[np.newaxis], task.samples)

    def evaluate_on(self, states: Array, samples: Array) -> tuple[float, float]:
        """Returns (Σ loss, Σ metric) of the mean prediction on these test samples."""
        return self.evaluator.total(states, samples)

    def evaluate_held(self, state: Array, task: HeldTest) -> tuple[float, float]:
        """Returns (Σ loss, Σ metric) of what a device holds of a state, on a part of the test samples."""
        held = held_model(
            self.device,
            Broadcast(model=state, mask=task.shared),
            task.orders,
            samples=self.job.samples[task.orders.device],
            streams=Streams(self.job.seed, *task.place),
        )
        return self.evaluator.total(held[np.newaxis], slice(task.start, task.start + TEST_PART))

    def test_gradient(self, state: Array, start: int) -> Array:
        """Σ of the loss gradients at a state over test samples from `start`: a part of ∇F(w_q) of Theorem 1."""
        return self.evaluator.gradient(state, slice(start, start + TEST_PART))


def _orders(task: TrainTask, number: int) -> Orders:
    """Returns the orders of one device of a chunk."""
    return Orders(
        device=task.devices[number],
        keep=task.keep[number],
        learning_rate=task.learning_rate,
        round_index=task.round_index,
        code=None if task.code is None else task.code[number],
        local_steps=None if task.local_steps is None else task.local_steps[number],
        memory={name: rows[number] for name, rows in task.memory.items()} if task.memory else NOTHING,
        first_trained=0 if task.first_trained is None else task.first_trained[number],
        time_left_s=task.time_left_s,
        last_trained=None if task.last_trained is None else task.last_trained[number],
        hidden_among=1 if task.cohort is None else task.cohort.threshold,
    )
