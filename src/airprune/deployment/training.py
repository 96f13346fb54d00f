"""Runs a device's rounds outside a simulation: its own samples, its own slots, the simulator's steps.

Without torch where that gives the same bits: a small device installs and loads far less.
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from airprune.components.component import Owner
from airprune.deployment.checks import MAX_PARTS
from airprune.deployment.own_data import Samples
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import RunDefinition, torch_model
from airprune.deployment.uploads import upload_to_bytes
from airprune.engines.machine import single_thread
from airprune.errors import InvalidValue
from airprune.methods.compression.base import Wire
from airprune.methods.masking.base import SubModel
from airprune.models.kernels import kernel_for
from airprune.models.kernels.devices import device_named
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY, LOSSES
from airprune.planning.schemes.work import Work
from airprune.randomness import WholeNumbers
from airprune.rounds.device import GradientRequest, device_round
from airprune.rounds.local import Device, LocalSettings, Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.method import Method
from airprune.rounds.model_source import plain_cnn, without_torch
from airprune.rounds.trained_part import trained_part, with_features
from airprune.rounds.wire import shared_mask_of
from airprune.rounds.work import parts_of
from airprune.scenario import Scenario

Array = np.ndarray
# Of one timing at joining.
_TIMED_STEPS = 3


class Trainer:
    """Trains one device of a run.

    Args:
      slowdown: factor by which the device is to be slower than this machine; see `slowed`.
    """

    def __init__(self, work: RunDefinition, index: int, samples: Samples, *, slowdown: float = 1.0) -> None:
        self.work, self.index, (x, y) = work, index, samples
        self.slowdown = slowdown
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
                local_steps=orders.local_steps if orders.HasField("local_steps") else None,
                memory=memory or self.first_memory,
                first_trained=orders.first_trained,
            ),
            samples=np.arange(self.num_samples),
            streams=Streams(self.work.scenario.seed, *place, secret_noise=self._secret_noise),
        )
        if made.first_trained != orders.first_trained:
            way_out = "Let the scheme plan trained parts, as scheme 'work' does, or simulate with `airprune run`"
            rule = f"must be {orders.first_trained}, as ordered: a deployment carries planned parts alone"
            raise InvalidValue("SubModel.first_trained", rule, made.first_trained, way_out)
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
        batch = self._timed_batch
        return self._fastest_s(lambda: self._device.gradient(batch)) / len(batch)

    def part_seconds(self) -> list[tuple[float, float]]:
        """Returns the same of every part that the scheme may have it train, without and with kept features.

        The whole model comes first; empty where no parts are planned.
        """
        scheme, device, batch = self.work.method.scheme, self._device, self._timed_batch
        parts = parts_of(self.work.shape).tolist()
        if not isinstance(scheme, Work) or not scheme.parts or len(parts) > MAX_PARTS:
            return []
        found = []
        for first in parts:
            part = trained_part(device.model, SubModel(first_trained=first))
            step_s = cached_s = self._fastest_s(GradientRequest(device, batch, part).answer)
            if part is not None:
                kept = with_features(device, part, [batch, batch])
                if kept.features is not None:
                    cached_s = self._fastest_s(GradientRequest(device, batch, kept).answer)
            found.append((step_s / len(batch), cached_s / len(batch)))
        return found

    @property
    def _timed_batch(self) -> Array:
        return np.arange(min(self.work.scenario.train.batch_size, self.num_samples))

    def _fastest_s(self, step: Callable[[], object]) -> float:
        """Returns the time of the fastest of a few calls, slowed down as training is."""
        single_thread()
        clock, best_s = time.thread_time if self.slowdown > 1.0 else time.perf_counter, np.inf
        for _ in range(_TIMED_STEPS):
            start_s = clock()
            step()
            best_s = min(best_s, clock() - start_s)
        return self.slowdown * best_s


@contextlib.contextmanager
def slowed(factor: float) -> Iterator[None]:
    """Makes a block take `factor` times the processor seconds that its thread uses, by waiting at its end.

    Time in which other processes had the processor counts as waiting, so that a slowed device keeps its pace on a busy
    machine. A factor of 1 changes nothing.
    """
    start_s, used_s = time.perf_counter(), time.thread_time()
    yield
    if factor > 1.0:
        end_s = start_s + factor * (time.thread_time() - used_s)
        time.sleep(max(0.0, end_s - time.perf_counter()))


def local_device(scenario: Scenario, *, input_shape: Sequence[int], num_classes: int, x: Array, y: Array) -> Device:
    """Returns what runs the device rounds of a scenario on these samples; a received model is loaded before each.

    Args:
      input_shape: of one sample; all nodes of a deployment agree on it, whatever samples they have.
    """
    scenario.check_names()
    train = scenario.train
    model = _model(scenario, input_shape, num_classes, x, y)
    device = device_named(train.device, float64=scenario.model.float64)
    method = Method.of(scenario).local
    kernel = kernel_for(train.kernel, model, x, y, loss=train.loss, device=device, teaches=method.masking.teaches)
    return Device(
        model,
        x,
        y,
        LocalSettings.of(scenario, kernel, device),
        method,
        Wire.of(model.shape, value_bits=scenario.plan.bits_per_weight),
        loss=None if train.loss == CROSS_ENTROPY else LOSSES[train.loss],
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
