"""Runs a device's rounds outside a simulation: its own samples, its own slots, the simulator's steps.

Without torch where that gives the same bits: a small device installs and loads far less.
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from airprune.components.component import Owner
from airprune.deployment.bounds import LEAST_SECONDS_PER_SAMPLE, most_loss
from airprune.deployment.checks import MAX_PARTS
from airprune.deployment.own_data import Samples
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import RunDefinition, torch_model
from airprune.deployment.secure.device_sums import DeviceSums
from airprune.deployment.uploads import upload_to_bytes
from airprune.engines.machine import single_thread
from airprune.errors import InvalidValue, WorkFailed
from airprune.methods.compression.base import Wire
from airprune.methods.masking.base import SubModel
from airprune.models.kernels import kernel_for
from airprune.models.kernels.devices import device_named
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY, loss_named
from airprune.planning.schemes.work_scheme import WorkScheme
from airprune.randomness import WholeNumbers
from airprune.rounds.device import GradientRequest, round_in_steps, train
from airprune.rounds.local import Device, LocalSettings, Streams
from airprune.rounds.messages import Broadcast, Orders, Upload
from airprune.rounds.method import Method
from airprune.rounds.model_source import plain_cnn, without_torch
from airprune.rounds.own_training import Training
from airprune.rounds.wire import Part, shared_mask_of
from airprune.rounds.work import layers_with_weights
from airprune.scenario import Scenario

Array = np.ndarray
T = TypeVar("T")
# Of one timing at joining.
_TIMED_STEPS = 3
# Of weights to time with: that of a model which has just been made.
_WEIGHT_SCALE = 0.05
_NO_TIME_S = 1e-9


class Trainer:
    """Trains one device of a run.

    Args:
      slowdown: factor by which the device is to be slower than this machine; see `slowed`.
      sums: the secure sums of the device, where its updates are hidden.
    """

    def __init__(
        self,
        work: RunDefinition,
        index: int,
        samples: Samples,
        *,
        slowdown: float = 1.0,
        sums: DeviceSums | None = None,
    ) -> None:
        self.work, self.index, (x, y) = work, index, samples
        self.sums = sums
        self.slowdown = slowdown
        self.num_samples = len(y)
        self._device = local_device(work.scenario, input_shape=work.input_shape, num_classes=work.num_classes, x=x, y=y)
        self.kernel = self._device.settings.kernel
        self._secret_noise = work.scenario.privacy.noise_from == "device"

    @cached_property
    def first_memory(self) -> dict[str, Array]:
        """Slots of the device as they start."""
        return {name: slot.row(self.work.shape) for name, slot in self.work.slots(Owner.DEVICE).items()}

    def upload(self, orders: pb.Orders, received: Broadcast, memory: Mapping[str, Array]) -> Made:
        """Trains by its orders; `memory` is empty before any upload of it counted."""
        start_s, timer = self._clock(), _StepTimer(self._clock)
        code = orders.code if orders.HasField("code") else None
        last_trained = orders.last_trained if orders.HasField("last_trained") else None
        place = (orders.global_round, orders.edge_round)
        if self.work.hides and self.sums is None:
            raise WorkFailed("Updates of this run are hidden, and this device has no secure sums.")
        self._start_afresh(place)
        steps = round_in_steps(
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
                last_trained=last_trained,
                time_left_s=orders.time_left_s,
                hidden_among=1 if self.sums is None else self.sums.threshold(orders.session),
            ),
            samples=np.arange(self.num_samples),
            streams=Streams(self.work.scenario.seed, *place, secret_noise=self._secret_noise),
        )
        made = timer.run(steps)
        if self._device.settings.loop is not None:  # which asks for no gradients
            timer.ends_s.append(self._clock())
        self._check_converges(made)
        top = self.work.shape.num_layers - 1
        ordered = orders.first_trained, top if last_trained is None else last_trained
        if (made.first_trained, top if made.last_trained is None else made.last_trained) != ordered:
            way_out = "Let the scheme plan trained parts, as scheme 'work' does, or simulate with `airprune run`"
            rule = "and last_trained must be as ordered: a deployment carries planned parts alone"
            got = (made.first_trained, made.last_trained)
            raise InvalidValue("SubModel.first_trained", rule, got, way_out)
        if self.sums is not None:
            made = self.sums.masked(made, received, orders)
        shared_mask = shared_mask_of(self.work.method.masking, received.mask, orders.round_index, self.work.codec)
        digest = bytes.fromhex(orders.model_digest)
        data = upload_to_bytes(made, self.work.codec, model_digest=digest, shared_mask=shared_mask, code=code)
        memory = {name: np.array(made.memory[name]) for name in self.first_memory}
        steps_s, all_s = (end_s - start_s for end_s in (timer.ends_s[-1], self._clock()))
        return Made(data=data, memory=memory, steps_share=steps_s / max(all_s, _NO_TIME_S))

    def _check_converges(self, made: Upload) -> None:
        """Raises WorkFailed for an update that an edge would refuse: it is the training that diverged, not a lie."""
        scenario = self.work.scenario
        is_finite = np.isfinite(made.loss) and np.isfinite(made.state).all()
        if not is_finite or abs(made.loss) > most_loss(scenario, self.work.num_classes):
            raise WorkFailed(
                f"Training diverged on this device, with a loss of {made.loss:.6g}; lower train.learning_rate (now "
                f"{scenario.train.learning_rate:g})."
            )

    @property
    def _clock(self) -> Callable[[], float]:
        """Returns the clock of training: that of its thread where it is slowed down, so that waiting does not count."""
        return time.thread_time if self.slowdown > 1.0 else time.perf_counter

    def _start_afresh(self, place: tuple[int, int]) -> None:
        """As simulated devices start: layers that draw have a stream of their own, counters are those of the model."""
        single_thread()
        seeds = WholeNumbers(self.work.scenario.seed, "layers", *place)
        self._device.model.start_afresh(lambda: seeds[self.index], self._device.settings.device)

    def seconds_per_sample(self) -> float:
        """Returns the time of one training step on a minibatch, the fastest of a few, per sample."""
        self._prepare_timing()
        batch = np.arange(min(self.work.scenario.train.batch_size, self.num_samples))
        best_s = np.inf
        for _ in range(_TIMED_STEPS):
            start_s = self._clock()
            self._device.gradient(batch)
            best_s = min(best_s, self._clock() - start_s)
        return max(self.slowdown * best_s / len(batch), LEAST_SECONDS_PER_SAMPLE)

    def part_seconds(self) -> list[tuple[float, float]]:
        """Returns seconds per sample of a local step of every part that it may be ordered to train.

        Each without and with kept features; the whole model comes first. Empty where no parts are planned.
        """
        scheme = self.work.method.scheme
        if not isinstance(scheme, WorkScheme):
            return []
        lowest, highest = scheme.parts_of(layers_with_weights(self.work.shape))
        parts = list(zip(lowest.tolist(), [None] * len(lowest) if highest is None else highest.tolist(), strict=True))
        if not 1 < len(parts) <= MAX_PARTS:
            return []
        self._prepare_timing()
        size = max(min(self.work.scenario.train.batch_size, self.num_samples // 2), 1)
        first_pass = [np.arange(size), np.arange(self.num_samples - size, self.num_samples)]
        return [
            (self._step_s(part, first_pass, 0) / size, self._step_s(part, 3 * first_pass, len(first_pass)) / size)
            for part in parts
        ]

    def _step_s(self, part: Part, batches: list[Array], skipped: int) -> float:
        """Returns the time of the fastest of these local steps but the first `skipped`, of a few trials."""
        model, work = self._device.model, self.work
        memory = {**self.first_memory, **{n: slot.row(work.shape) for n, slot in work.slots(Owner.CLOUD).items()}}
        orders = Orders(device=self.index, keep=work.shape.prunable_weights, learning_rate=0.0, round_index=0)
        best_s, sub_model = np.inf, SubModel(first_trained=part[0], last_trained=part[1])
        for _ in range(_TIMED_STEPS):
            timer = _StepTimer(self._clock)
            timer.run(train(self._device, model.state_array.copy(), orders, sub_model, batches, memory))
            best_s = min(best_s, *np.diff(timer.starts_s)[skipped:].tolist())
        return self.slowdown * best_s

    def _prepare_timing(self) -> None:
        single_thread()
        model = self._device.model
        if not model.state_array.any():  # a model without torch starts as zeros, which its kernel skips
            model.load(_WEIGHT_SCALE * np.random.default_rng(0).standard_normal(model.num_state).astype(np.float32))
        model.begin_training()


class Made(NamedTuple):
    """An upload and what belongs to it.

    Attributes:
      data: its bytes.
      memory: the device's slots after it.
      steps_share: the share of its time that local steps took; the rest is for encoding.
    """

    data: bytes
    memory: dict[str, Array]
    steps_share: float


class _StepTimer:
    """Computes the gradients that a generator asks for.

    Attributes:
      starts_s, ends_s: when each of them was begun and finished.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.starts_s: list[float] = []
        self.ends_s: list[float] = []

    def run(self, steps: Generator[GradientRequest, float, T]) -> T:
        """Returns what the generator does."""
        try:
            wanted = next(steps)
            while True:
                self.starts_s.append(self._clock())
                loss = wanted.answer()
                self.ends_s.append(self._clock())
                wanted = steps.send(loss)
        except StopIteration as end:
            made: T = end.value
            return made


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
    settings = scenario.train
    model = _model(scenario, input_shape, num_classes, x, y)
    device = device_named(settings.device, float64=scenario.model.float64)
    method, training = Method.of(scenario).local, Training.of(scenario)
    kernel = kernel_for(
        settings.kernel,
        model,
        x,
        y,
        loss=settings.loss,
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
        loss=None if settings.loss == CROSS_ENTROPY else loss_named(settings.loss),
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
