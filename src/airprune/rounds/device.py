"""What one device does in one edge round: choose, train, encode. Steps 5–9 of Algorithm 1.

`device_round` is a pure function of what the device received, its orders, its memory and the address of its randomness.
One `Device` serves any number of simulated devices after each other: nothing of one is left for the next. Inside it is
`round_in_steps`, which stops at every gradient that it needs, so that somebody may compute those of several devices
together. Its steps are in `local_steps.py`, what it does before it sends in `sending.py`.
Torch is imported only by what needs it: a model that is a torch module, Adam, diagnostics, the loss of Eq. (1).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from airprune.components.component import LocalComponent, ModelShape
from airprune.methods.compression.base import Wire
from airprune.methods.masking.base import DeviceView
from airprune.methods.objectives.base import LocalRun, Objective
from airprune.models.kernels import KERNELS, native
from airprune.models.kernels.base import Teaching
from airprune.models.layout import LocalModel
from airprune.randomness import NumberedStreams
from airprune.rounds import personal
from airprune.rounds.local_steps import GradientRequest, moving_parameters, train, train_units
from airprune.rounds.messages import Broadcast, Orders, Upload
from airprune.rounds.method import LocalMethod
from airprune.rounds.private import secret_normals
from airprune.rounds.sending import encode, make_private
from airprune.scenario import Scenario

if TYPE_CHECKING:
    from airprune.models.kernels.autograd import MinibatchLoss
    from airprune.models.losses.base import Loss

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """How every device trains; the learning rate comes with the orders."""

    batch_size: int
    local_epochs: int
    local_steps: int | None = None
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    noise_multiplier: float = 0.0
    diagnostics: bool = False
    kernel: str = "torch"
    device: str = "cpu"

    @classmethod
    def of(cls, scenario: Scenario, kernel: str, device: str = "cpu") -> LocalSettings:
        train = scenario.train
        return cls(
            batch_size=train.batch_size,
            local_epochs=train.local_epochs,
            local_steps=train.local_steps,
            optimizer=train.optimizer,
            momentum=train.momentum,
            weight_decay=train.weight_decay,
            clip_norm=scenario.privacy.clip_norm,
            noise_multiplier=scenario.privacy.noise_multiplier,
            diagnostics=scenario.diagnostics.gradients,
            kernel=kernel,
            device=device,
        )


@dataclass(frozen=True, eq=False)
class Streams:
    """The random streams of one edge round, one for each device, made when first asked for.

    Attributes:
      secret_noise: whether the noise of privacy is drawn so that nobody can repeat it, instead of from the seed.
    """

    seed: int
    global_round: int
    edge_round: int
    secret_noise: bool = field(default=False, kw_only=True)

    @cached_property
    def batches(self) -> NumberedStreams:
        """The order in which samples are visited."""
        return self._named("device")

    @cached_property
    def masking(self) -> NumberedStreams:
        return self._named("masking")

    @cached_property
    def compression(self) -> NumberedStreams:
        return self._named("compression")

    @cached_property
    def privacy(self) -> NumberedStreams:
        return self._named("privacy")

    def noise(self, device: int, size: int) -> Array:
        """Standard normal numbers of a device.  [size]"""
        return secret_normals(size) if self.secret_noise else self.privacy[device].standard_normal(size)

    def _named(self, stream: str) -> NumberedStreams:
        return NumberedStreams(self.seed, stream, self.global_round, self.edge_round)


class Device:
    """One model and the samples around it: all that a device round needs and that outlives it.

    Args:
      loss: what is minimised; none is cross-entropy.

    Attributes:
      waits: whether the gradient that a masking asks for is computed like those of the steps: with other devices'.
    """

    waits = False

    def __init__(
        self,
        model: LocalModel,
        x: Array,
        y: Array,
        settings: LocalSettings,
        method: LocalMethod,
        wire: Wire,
        *,
        loss: Loss | None = None,
    ) -> None:
        self.model, self.settings, self.method, self.wire = model, settings, method, wire
        self.shape: ModelShape = model.shape
        self.minimised = loss
        self.gradient = KERNELS[settings.kernel].build(model, x, y, loss=loss, device=settings.device)
        self.teaching: Teaching | None = None
        if method.masking.teaches:
            build = KERNELS[settings.kernel].teaching
            assert build is not None  # `kernel_for` has checked it
            self.teaching = build(model, x, y)
        widened = model.state_array.dtype == np.float64 and x.dtype == np.float32
        self.x, self.y = x.astype(np.float64) if widened else x, y
        masking, objective = method.masking, method.objective
        self.adjusts = objective.overrides(Objective.adjust)
        self.finishes = any(
            part.overrides(LocalComponent.finish) or part.sends_reports for part in (masking, objective)
        )
        self.memory_slots = method.compression.slots(self.shape)
        self.weight_index = np.flatnonzero(self.shape.is_weight)
        self._smaller: dict[tuple[int, ...], Device | None] = {}
        self.tensor_stops = np.array([tensor.stop for tensor in self.shape.tensors if tensor.counted])

    @cached_property
    def loss(self) -> MinibatchLoss:
        """F as torch computes it, for Eq. (1)."""
        from airprune.models.kernels.autograd import MinibatchLoss

        return MinibatchLoss(self.model, self.x, self.y, loss=self.minimised, device=self.settings.device)

    @property
    def constants(self) -> ModuleType:
        """What measures diagnostics."""
        from airprune.rounds import constants

        return constants

    def probe(self, batch: Array) -> None:
        """∇F of the prunable weights into the model's `gradient_array`; what is in the rest of it does not matter."""
        getattr(self.gradient, "of_prunable", self.gradient)(batch)

    def smaller(self, kept: tuple[Array, ...]) -> Device | None:
        """A device around the model of so many units of each group; None if training needs, or is, the whole one."""
        settings = self.settings
        if self.adjusts or settings.diagnostics or settings.weight_decay:
            return None
        counts = tuple(int(np.count_nonzero(stays)) for stays in kept)
        if counts not in self._smaller:
            self._smaller[counts] = self._built(kept)
        return self._smaller[counts]

    def _built(self, kept: tuple[Array, ...]) -> Device | None:
        model = self.model.smaller(kept, self.x[:1])
        if model is None or KERNELS[self.settings.kernel].unsupported(model, self.x, self.y):
            return None  # another kernel would be slower than this one on zeros
        return Device(model, self.x, self.y, self.settings, self.method, self.wire, loss=self.minimised)


def held_model(device: Device, received: Broadcast, orders: Orders, *, samples: Array, streams: Streams) -> Array:
    """What a device would hold of a model, before it trains: zero where it holds nothing.  [num_state]"""
    received = _with_own_layers(device, received, orders)
    device.model.load(received.model)
    order = streams.batches.at(orders.device).permutation(samples)
    view = _View(device, received, orders, order[: device.settings.batch_size], streams)
    sub_model = device.method.masking.choose(view)
    if sub_model.start is not None:
        device.model.state_array[device.model.prunable] = sub_model.start
    _hold(device.model, sub_model.held)
    return device.model.state_array.copy()


def _with_own_layers(device: Device, received: Broadcast, orders: Orders) -> Broadcast:
    if not device.shape.num_personal:
        return received
    return replace(received, model=personal.put_in(received.model, orders.memory, device.shape))


def device_round(device: Device, received: Broadcast, orders: Orders, *, samples: Array, streams: Streams) -> Upload:
    """One edge round of one device on its samples."""
    steps = round_in_steps(device, received, orders, samples=samples, streams=streams)
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(wanted.device.gradient(wanted.batch))
    except StopIteration as end:
        upload: Upload = end.value
        return upload


def round_in_steps(
    device: Device, received: Broadcast, orders: Orders, *, samples: Array, streams: Streams
) -> Generator[GradientRequest, float, Upload]:
    """`device_round` as a generator: asks for every gradient, and goes on with the loss that it is sent."""
    model, settings, common = device.model, device.settings, received.model
    received = _with_own_layers(device, received, orders)
    model.load(received.model)
    model.begin_training()
    gradient = device.constants.full_gradient(device, samples) if settings.diagnostics else None
    batches = minibatches(settings, orders.local_steps, samples, streams.batches.at(orders.device))
    view = _View(device, received, orders, batches[0], streams)
    masking, report = device.method.masking, dict[str, Array]()
    try:
        sub_model = masking.choose(view)
    except _GradientNeeded:
        yield GradientRequest(device, batches[0])
        view = _View(device, received, orders, batches[0], streams, is_there=True)
        sub_model = masking.choose(view)
    if sub_model.start is not None:
        model.state_array[model.prunable] = sub_model.start
    error_sq = _hold(model, sub_model.held)

    memory = {**orders.memory, **received.values}
    steps = train if sub_model.units is None else train_units
    trained = yield from steps(device, received.model, orders, sub_model, batches, memory)
    noise_sq = smoothness = np.nan
    if gradient is not None:
        noise_sq, smoothness = device.constants.noise_and_smoothness(device, samples, received.model, gradient)
    if sub_model.sent_after is not None:
        sub_model = replace(sub_model, sent=sub_model.sent_after(model.state_array[model.prunable]))
    if device.finishes:
        run = LocalRun(
            view=view,
            received=received.model,
            trained=model.state_array,
            learning_rate=orders.learning_rate,
            num_steps=trained.num_steps,
            moves=moving_parameters(device, sub_model),
            loss=trained.loss,
            num_samples=trained.num_samples,
            gradient_sum=trained.gradient_sum,
        )
        report = dict(sub_model.report)
        for part in (device.method.masking, device.method.objective):
            before = dict(memory)
            memory |= part.finish(run, memory)
            report |= part.report(run, before, memory)
    if device.shape.num_personal:
        memory |= personal.take_out(model.state_array, common, device.shape)
    if settings.clip_norm is not None:
        make_private(device, received.model, sub_model, settings.clip_norm, orders, streams)
    encoded = encode(device, received.model, sub_model, memory, orders, streams)
    return Upload(
        state=model.state_array,
        mask=sub_model.sent,
        sent_bits=encoded.sent_bits,
        message=encoded.message,
        code_error=encoded.code_error,
        report=report,
        memory=memory,
        loss=trained.loss,
        num_samples=trained.num_samples,
        gradient_sq_max=trained.gradient_sq_max if settings.diagnostics else np.nan,
        gradient_noise_sq=noise_sq,
        smoothness=smoothness,
        pruning_error_sq=error_sq,
        num_kept=encoded.num_kept,
    )


def minibatches(
    settings: LocalSettings, local_steps: int | None, samples: Array, rng: np.random.Generator
) -> list[Array]:
    """Numbers of the samples of every minibatch; each epoch visits all samples in an order of its own.

    Args:
      local_steps: as in `Orders`.
    """
    last_step = settings.local_steps if local_steps is None else local_steps
    size = settings.batch_size
    starts = range(0, len(samples), size)
    found: list[Array] = []
    for _ in range(settings.local_epochs):
        order = samples.copy()
        rng.shuffle(order)
        found += [order] if len(starts) == 1 else [order[start : start + size] for start in starts]
        if last_step is not None and len(found) >= last_step:
            break
    return found[:last_step]


class _GradientNeeded(BaseException):
    """A masking asks for a gradient that the device waits for."""


class _View(DeviceView):
    """One object and no closures: all devices of a stack have theirs at once, and the garbage collector counts."""

    def __init__(
        self,
        local: Device,
        received: Broadcast,
        orders: Orders,
        batch: Array,
        streams: Streams,
        *,
        is_there: bool = False,
    ) -> None:
        """`is_there`: the gradient on the minibatch is in its place already."""
        super().__init__(
            device=orders.device,
            round_index=orders.round_index,
            keep=orders.keep,
            shape=local.shape,
            received=received.model,
            learning_rate=orders.learning_rate,
            shared=received.mask,
            memory=orders.memory,
        )
        self._local, self._batch, self._streams, self._is_there = local, batch, streams, is_there

    def loss(self, weights: Array) -> float:
        model = self._local.model
        saved = model.state_array[model.prunable].copy()
        model.state_array[model.prunable] = weights
        value = self._local.loss.value(self._batch)
        model.state_array[model.prunable] = saved
        return value

    def _gradient(self) -> Array:
        local = self._local
        if not self._is_there:
            if local.waits:
                raise _GradientNeeded
            local.probe(self._batch)
        return local.model.gradient_array[local.model.prunable]

    def _rng(self) -> np.random.Generator:
        return self._streams.masking[self.device]


def _hold(model: LocalModel, held: Array | None) -> float:
    """Eq. (5): zero what the device does not hold; returns ‖w − w ⊙ m‖²."""
    if held is None:
        return 0.0
    weights = model.state_array[model.prunable]
    if weights.dtype == np.float32 and not native.trouble:
        return native.hold(weights, held)
    kept = weights * held
    removed = weights - kept
    weights[:] = kept
    return float(np.square(removed).sum())
