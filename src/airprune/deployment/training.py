"""A device's round outside a simulation: its own samples, its own memory, the simulator's steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from airprune.components.component import Owner
from airprune.deployment.own_data import Samples
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.small import local_device
from airprune.deployment.uploads import upload_to_bytes
from airprune.engines.machine import single_thread
from airprune.randomness import WholeNumbers
from airprune.rounds.device import device_round
from airprune.rounds.local import Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.wire import told_mask

Array = np.ndarray
# Of one timing at joining.
_TIMED_STEPS = 3


class Trainer:
    """Trains one device of a run."""

    def __init__(self, work: RunDefinition, index: int, samples: Samples) -> None:
        self.work, self.index, (x, y) = work, index, samples
        self.num_samples = len(y)
        self._device = local_device(work.scenario, input_shape=work.input_shape, num_classes=work.num_classes, x=x, y=y)
        self.kernel = self._device.settings.kernel
        self._secret_noise = work.scenario.privacy.noise_from == "device"

    @cached_property
    def first_memory(self) -> dict[str, Array]:
        """The device's slots as they start."""
        return {name: slot.row(self.work.shape) for name, slot in self.work.slots(Owner.DEVICE).items()}

    def upload(
        self, orders: pb.Orders, received: Broadcast, memory: Mapping[str, Array]
    ) -> tuple[bytes, dict[str, Array]]:
        """(what is sent, the device's memory after it); `memory` is empty before anything of it counted."""
        code = orders.code if orders.HasField("code") else None
        place = (orders.global_round, orders.edge_round)
        self._start_afresh(place)
        made = device_round(
            self._device,
            received,
            Orders(
                device=self.index,
                keep=orders.keep,
                learning_rate=orders.learning_rate,
                round_index=orders.round_index,
                code=code,
                memory=memory or self.first_memory,
            ),
            samples=np.arange(self.num_samples),
            streams=Streams(self.work.scenario.seed, *place, secret_noise=self._secret_noise),
        )
        told = told_mask(self.work.method.masking, received.mask, orders.round_index, self.work.codec)
        digest = bytes.fromhex(orders.model_digest)
        data = upload_to_bytes(made, self.work.codec, model_digest=digest, told=told, code=code)
        return data, {name: np.array(made.memory[name]) for name in self.first_memory}

    def _start_afresh(self, place: tuple[int, int]) -> None:
        """As simulated devices start: layers that draw have a stream of their own, counters are those of the model."""
        single_thread()
        seeds = WholeNumbers(self.work.scenario.seed, "layers", *place)
        self._device.model.start_afresh(lambda: seeds[self.index], self._device.settings.device)

    def seconds_per_sample(self) -> float:
        """Of one training step on a minibatch, the fastest of a few."""
        single_thread()
        batch = np.arange(min(self.work.scenario.train.batch_size, self.num_samples))
        best_s = np.inf
        for _ in range(_TIMED_STEPS):
            start_s = time.perf_counter()
            self._device.gradient(batch)
            best_s = min(best_s, time.perf_counter() - start_s)
        return best_s / len(batch)
