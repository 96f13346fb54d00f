"""Runs a device's rounds outside a simulation: its own samples, its own slots, the simulator's steps.

Without torch where that gives the same bits: a small device installs and loads far less.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from airprune.components.component import Owner
from airprune.deployment.own_data import Samples
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import RunDefinition, torch_model
from airprune.deployment.uploads import upload_to_bytes
from airprune.engines.machine import single_thread
from airprune.errors import InvalidValue
from airprune.methods.compression.base import Wire
from airprune.models.kernels import kernel_for
from airprune.models.kernels.devices import device_named
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY, loss_named
from airprune.randomness import WholeNumbers
from airprune.rounds.device import device_round
from airprune.rounds.local import Device, LocalSettings, Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.method import Method
from airprune.rounds.model_source import plain_cnn, without_torch
from airprune.rounds.own_training import Training
from airprune.rounds.wire import shared_mask_of
from airprune.scenario import Scenario

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
        """Slots of the device as they start."""
        return {name: slot.row(self.work.shape) for name, slot in self.work.slots(Owner.DEVICE).items()}

    def upload(
        self, orders: pb.Orders, received: Broadcast, memory: Mapping[str, Array]
    ) -> tuple[bytes, dict[str, Array]]:
        """Returns (the upload, the device's slots after it); `memory` is empty before any upload of it counted."""
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
                time_left_s=orders.time_left_s,
            ),
            samples=np.arange(self.num_samples),
            streams=Streams(self.work.scenario.seed, *place, secret_noise=self._secret_noise),
        )
        shared_mask = shared_mask_of(self.work.method.masking, received.mask, orders.round_index, self.work.codec)
        digest = bytes.fromhex(orders.model_digest)
        data = upload_to_bytes(made, self.work.codec, model_digest=digest, shared_mask=shared_mask, code=code)
        return data, {name: np.array(made.memory[name]) for name in self.first_memory}

    def _start_afresh(self, place: tuple[int, int]) -> None:
        """As simulated devices start: layers that draw have a stream of their own, counters are those of the model."""
        single_thread()
        seeds = WholeNumbers(self.work.scenario.seed, "layers", *place)
        self._device.model.start_afresh(lambda: seeds[self.index], self._device.settings.device)

    def seconds_per_sample(self) -> float:
        """Returns the time of one training step on a minibatch, the fastest of a few, per sample."""
        single_thread()
        batch = np.arange(min(self.work.scenario.train.batch_size, self.num_samples))
        best_s = np.inf
        for _ in range(_TIMED_STEPS):
            start_s = time.perf_counter()
            self._device.gradient(batch)
            best_s = min(best_s, time.perf_counter() - start_s)
        return best_s / len(batch)


def local_device(scenario: Scenario, *, input_shape: Sequence[int], num_classes: int, x: Array, y: Array) -> Device:
    """Returns what runs the device rounds of a scenario on these samples; a received model is loaded before each.

    Args:
      input_shape: of one sample; all nodes of a deployment agree on it, whatever samples they have.
    """
    scenario.check_names()
    train = scenario.train
    model = _model(scenario, input_shape, num_classes, x, y)
    device = device_named(train.device, float64=scenario.model.float64)
    method, training = Method.of(scenario).local, Training.of(scenario)
    kernel = kernel_for(
        train.kernel,
        model,
        x,
        y,
        loss=train.loss,
        device=device,
        teaches=method.masking.teaches,
        needs_module=training.needs_module,
    )
    return Device(
        model,
        x,
        y,
        LocalSettings.of(scenario, kernel, device, training),
        method,
        Wire.of(model.shape, value_bits=scenario.plan.bits_per_weight),
        loss=None if train.loss == CROSS_ENTROPY else loss_named(train.loss),
    )


def _model(scenario: Scenario, input_shape: Sequence[int], num_classes: int, x: Array, y: Array) -> LocalModel:
    settings, kernel = scenario.model, scenario.train.kernel
    needed = without_torch(scenario, x, y, input_shape=input_shape, num_classes=num_classes, kernel=kernel)
    if not needed:
        names = {"prunable": settings.prunable, "personal": settings.personal}
        return plain_cnn(settings.name, input_shape, num_classes, **names)
    if importlib.util.find_spec("torch") is None:
        way_out = "Install torch on this device, or change the scenario."
        raise InvalidValue("Scenario", "must be one that devices without torch can train", needed, way_out)
    return torch_model(scenario, input_shape=input_shape, num_classes=num_classes)
