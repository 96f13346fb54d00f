"""What one device does in one edge round: choose, train, encode. Steps 5–9 of Algorithm 1.

`device_round` is a pure function of what the device received, its orders, its memory and the address of its randomness.
One `Device` serves any number of simulated devices after each other: nothing of one is left for the next. Inside it is
`round_in_steps`, which stops at every gradient that it needs, so that somebody may compute those of several devices
together.
Torch is imported only by what needs it: a model that is a torch module, Adam, diagnostics, the loss of Eq. (1).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from airprune.components import ModelShape
from airprune.compression.base import Message, Wire, transmit
from airprune.federation import personal, private
from airprune.federation.messages import Broadcast, Orders, Upload
from airprune.federation.method import LocalMethod
from airprune.federation.private import secret_normals
from airprune.flat import LocalModel, places
from airprune.kernels import KERNELS, native
from airprune.kernels.base import Teaching
from airprune.learning.optimisers import OPTIMISERS, add_scaled
from airprune.masking.base import DeviceView, SubModel
from airprune.objectives.base import LocalRun
from airprune.randomness import NumberedStreams
from airprune.scenario import Scenario

if TYPE_CHECKING:
    from airprune.kernels.autograd import MinibatchLoss
    from airprune.losses.base import Loss

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
        if method.masking.component.teaches:
            build = KERNELS[settings.kernel].teaching
            assert build is not None  # `kernel_for` has checked it
            self.teaching = build(model, x, y)
        widened = model.state_array.dtype == np.float64 and x.dtype == np.float32
        self.x, self.y = x.astype(np.float64) if widened else x, y
        compression = method.compression
        self.adjusts, self.reports = method.objective.has("adjust"), method.masking.has("report")
        self.observes, self.collects = method.masking.has("observe"), method.masking.has("collects")
        self.finishes = method.objective.has("finish") or method.masking.has("finish")
        self.memory_slots = compression("slots", self.shape)
        self.weight_index = np.flatnonzero(self.shape.is_weight)
        self._smaller: dict[tuple[int, ...], Device | None] = {}
        self.tensor_stops = np.array([tensor.stop for tensor in self.shape.tensors if tensor.counted])

    @cached_property
    def loss(self) -> MinibatchLoss:
        """F as torch computes it, for Eq. (1)."""
        from airprune.kernels.autograd import MinibatchLoss

        return MinibatchLoss(self.model, self.x, self.y, loss=self.minimised, device=self.settings.device)

    @property
    def constants(self) -> ModuleType:
        """What measures diagnostics."""
        from airprune.federation import constants

        return constants

    def probe(self, batch: Array) -> None:
        """∇F of the prunable weights into the model's `gradient_array`; what is in the rest of it does not matter."""
        getattr(self.gradient, "of_prunable", self.gradient)(batch)

    def smaller(self, kept: tuple[Array, ...]) -> Device | None:
        """A device around the model of so many units of each group; None if training needs, or is, the whole one."""
        settings = self.settings
        if self.adjusts or self.collects or settings.diagnostics or settings.weight_decay:
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
    sub_model: SubModel = device.method.masking("choose", view)
    if sub_model.start is not None:
        device.model.state_array[device.model.prunable] = sub_model.start
    _hold(device.model, sub_model.held)
    return device.model.state_array.copy()


def _with_own_layers(device: Device, received: Broadcast, orders: Orders) -> Broadcast:
    if not device.shape.num_personal:
        return received
    return replace(received, model=personal.put_in(received.model, orders.memory, device.shape))


class Wanted(NamedTuple):
    """∇F of a device's model on a minibatch is to be left in its `gradient_array`; the answer is F."""

    device: Device
    batch: Array


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
) -> Generator[Wanted, float, Upload]:
    """`device_round` as a generator: asks for every gradient, and goes on with the loss that it is sent."""
    model, settings, common = device.model, device.settings, received.model
    received = _with_own_layers(device, received, orders)
    model.load(received.model)
    model.begin_training()
    gradient = device.constants.full_gradient(device, samples) if settings.diagnostics else None
    batches = minibatches(settings, orders.local_steps, samples, streams.batches.at(orders.device))
    view = _View(device, received, orders, batches[0], streams)
    try:
        sub_model, report = _chosen(device, view)
    except _GradientWanted:
        yield Wanted(device, batches[0])
        view = _View(device, received, orders, batches[0], streams, is_there=True)
        sub_model, report = _chosen(device, view)
    if sub_model.start is not None:
        model.state_array[model.prunable] = sub_model.start
    error_sq = _hold(model, sub_model.held)

    memory = {**orders.memory, **received.values}
    train = _train if sub_model.units is None else _train_units
    trained = yield from train(device, received.model, orders, sub_model, batches, memory)
    noise_sq = smoothness = np.nan
    if gradient is not None:
        noise_sq, smoothness = device.constants.noise_and_smoothness(device, samples, received.model, gradient)
    if sub_model.sent_after is not None:
        sub_model = replace(sub_model, sent=sub_model.sent_after(model.state_array[model.prunable]))
    if device.finishes or device.observes:
        run = LocalRun(
            received=received.model,
            trained=model.state_array,
            learning_rate=orders.learning_rate,
            num_steps=trained.num_steps,
            moves=_moving_parameters(device, sub_model),
            loss=trained.loss,
            num_samples=trained.num_samples,
            gradient_sum=trained.gradient_sum,
        )
        if device.observes:
            report |= device.method.masking("observe", view, run) or {}
        if device.method.masking.has("finish"):
            memory |= device.method.masking("finish", view, run)
        if device.method.objective.has("finish"):
            before = dict(memory)
            memory |= device.method.objective("finish", run, memory)
            if device.method.objective.has("report"):
                report |= device.method.objective("report", before, memory)
    if device.shape.num_personal:
        memory |= personal.take_out(model.state_array, common, device.shape)
    if settings.clip_norm is not None:
        _make_private(device, received.model, sub_model, settings.clip_norm, orders, streams)
    encoded = _encode(device, received.model, sub_model, memory, orders, streams)
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
    starts = range(0, len(samples), settings.batch_size)
    found: list[Array] = []
    for _ in range(settings.local_epochs):
        order = samples.copy()
        rng.shuffle(order)
        found += [order[start : start + settings.batch_size] for start in starts]
        if last_step is not None and len(found) >= last_step:
            break
    return found[:last_step]


class _GradientWanted(BaseException):
    """A masking asks for a gradient that the device waits for."""


def _chosen(device: Device, view: DeviceView) -> tuple[SubModel, dict[str, Array]]:
    """The device's sub-model, and what it reports before its steps."""
    masking = device.method.masking
    sub_model: SubModel = masking("choose", view)
    return sub_model, (masking("report", view, view.round_index) or {}) if device.reports else {}


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
                raise _GradientWanted
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


def _train_units(
    device: Device,
    received: Array,
    orders: Orders,
    sub_model: SubModel,
    batches: list[Array],
    memory: Mapping[str, Array],
) -> Generator[Wanted, float, _Trained]:
    """Trains the units of a sub-model as a model of their own where that can be done; else all, with zeros."""
    assert sub_model.units is not None
    small = device.smaller(sub_model.units)
    if small is None:
        return (yield from _train(device, received, orders, sub_model, batches, memory))
    state, scale = device.model.state_array, np.ones(device.model.num_state)
    place = places(device.model, small.model, sub_model.units)
    if sub_model.scale is not None:
        scale[device.model.prunable] = sub_model.scale
    small.model.load(state[place])
    inside = SubModel(scale=None if sub_model.scale is None else scale[place][small.model.prunable])
    trained = yield from _train(small, received[place], orders, inside, batches, memory)
    state[place] = small.model.state_array
    return trained


class _Trained(NamedTuple):
    loss: float
    num_samples: int
    num_steps: int
    gradient_sq_max: float
    gradient_sum: Array | None


def _train(
    device: Device,
    received: Array,
    orders: Orders,
    sub_model: SubModel,
    batches: list[Array],
    memory: Mapping[str, Array],
) -> Generator[Wanted, float, _Trained]:
    """Minibatch steps inside the sub-model, Eq. (8). Steps, momentum and decay move only what may move."""
    model, settings, objective = device.model, device.settings, device.method.objective
    step = OPTIMISERS[settings.optimizer](orders.learning_rate, settings.momentum, 0.0)
    gradient = model.gradient_array
    moves, masked = sub_model.moves, gradient[model.prunable]
    plain = sub_model.forward is None and sub_model.scale is None
    power = device.method.masking("collects", orders.round_index) if device.collects else 0
    gradient_sum = np.zeros_like(gradient) if power else None
    does_more = settings.diagnostics or settings.weight_decay or settings.momentum or device.adjusts or power
    is_bare = plain and not does_more and gradient.dtype == np.float32 and not native.trouble
    loss_sum, count, gradient_sq_max = 0.0, 0, 0.0
    for number, batch in enumerate(batches):
        if plain:
            loss, used = (yield Wanted(device, batch)), None
        else:
            loss, used = yield from _gradient_of_part(device, sub_model, batch, number)
        loss_sum += loss * len(batch)
        count += len(batch)
        weights = model.state_array[: model.num_parameters]  # not sooner: see `RowModel.loaded`
        if is_bare:  # as below, without a warning of numpy to be held back
            if moves is not None:
                _mask(masked, moves)
            step(weights, gradient)
            continue
        with _diverging():
            if used is not None and sub_model.forward_only:
                moves = used if sub_model.moves is None else used & sub_model.moves
            if gradient_sum is not None:
                gradient_sum += gradient**power
            if moves is not None:
                _mask(masked, moves)
            if settings.diagnostics:
                gradient_sq_max = max(gradient_sq_max, device.constants.squared_norm(gradient))
            if settings.weight_decay:
                add_scaled(gradient, weights, settings.weight_decay)
            if device.adjusts:
                parameters = received[: model.num_parameters]
                objective("adjust", gradient, weights, parameters, memory)
            if moves is not None and (settings.weight_decay or device.adjusts):
                _mask(masked, moves)
            if sub_model.forward_only and moves is not None:
                _step_inside(moves, weights[model.prunable], partial(step, weights, gradient))
            else:
                step(weights, gradient)
    return _Trained(
        loss=loss_sum / count,
        num_samples=count,
        num_steps=len(batches),
        gradient_sq_max=gradient_sq_max,
        gradient_sum=gradient_sum,
    )


def _diverging() -> np.errstate:
    """Around arithmetic on weights, never around a `yield`: training that diverges shows in the loss."""
    return np.errstate(over="ignore", invalid="ignore")


def _moving_parameters(device: Device, sub_model: SubModel) -> Array | None:
    if sub_model.moves is None:
        return None
    moving = np.ones(device.model.num_parameters, dtype=bool)
    moving[device.shape.prunable] = sub_model.moves
    return moving


def _mask(values: Array, mask: Array) -> None:
    """values ← values ⊙ mask."""
    if values.dtype == np.float32 and not native.trouble:
        native.multiply(values, mask)
    else:
        values *= mask


def _step_inside(moves: Array, weights: Array, step: Callable[[], None]) -> None:
    """Takes a step that leaves the other weights as they are: momentum of earlier steps does not reach them."""
    before = weights.copy()
    step()
    np.copyto(weights, before, where=moves == 0)


def _gradient_of_part(
    device: Device, sub_model: SubModel, batch: Array, step: int
) -> Generator[Wanted, float, tuple[float, Array | None]]:
    """∇F at what the forward pass of this step uses, scaled by the chain rule; the weights stay as they are.

    Returns F and what the forward pass used, None for all that is held.
    """
    if sub_model.teaches:
        with _diverging():
            return _distilled_gradient(device, sub_model, batch, step), None
    model = device.model
    weights = model.state_array[model.prunable]
    saved, used = weights.copy(), None
    with _diverging():
        if sub_model.forward is not None:
            used = sub_model.forward(step, saved)
            weights *= used
        if sub_model.scale is not None:
            weights *= sub_model.scale
    loss = yield Wanted(device, batch)
    weights[:] = saved
    if sub_model.scale is not None:
        with _diverging():
            model.gradient_array[model.prunable] *= sub_model.scale
    return loss, used


def _distilled_gradient(device: Device, sub_model: SubModel, batch: Array, step: int) -> float:
    """∇F of all that is held, plus ∇ of the cross-entropy of the forward pass to what that predicts; returns F.

    A pass over all that is held has nothing to learn from itself: the gradient is 0, and it is left out.
    """
    model, teaching = device.model, device.teaching
    assert teaching is not None and sub_model.forward is not None
    weights, gradient = model.state_array[model.prunable], model.gradient_array
    loss, probabilities = teaching.teach(batch)
    saved = weights.copy()
    used = sub_model.forward(step, saved)
    if used.all() if sub_model.held is None else np.array_equal(used, sub_model.held):
        return loss
    from_labels = gradient.copy()
    weights *= used
    teaching.learn(batch, probabilities)
    weights[:] = saved
    gradient[model.prunable] *= used
    gradient += from_labels
    return loss


def _make_private(
    device: Device, received: Array, sub_model: SubModel, clip_norm: float, orders: Orders, streams: Streams
) -> None:
    """Clips the update of all that will be sent, biases included, and adds the device's noise; in place."""
    is_sent = np.ones(device.shape.num_state, dtype=bool)
    is_sent[device.shape.personal] = False
    if sub_model.sent is not None:
        is_sent[device.shape.prunable] &= np.asarray(sub_model.sent, dtype=bool)
    state, noise_multiplier = device.model.state_array, device.settings.noise_multiplier
    base = received[is_sent].astype(np.float64)
    update = state[is_sent].astype(np.float64) - base
    clipped = private.clipped(update, clip_norm)
    if noise_multiplier:
        clipped = clipped + noise_multiplier * clip_norm * streams.noise(orders.device, len(update))
    if clipped is not update:
        state[is_sent] = (base + clipped).astype(state.dtype)


class _Encoded(NamedTuple):
    """As in an `Upload`."""

    sent_bits: float
    message: Message | None
    code_error: float
    num_kept: int | None = None


def _encode(
    device: Device,
    received: Array,
    sub_model: SubModel,
    memory: dict[str, Array],
    orders: Orders,
    streams: Streams,
) -> _Encoded:
    """Leaves in the model what the edge will decode, zero where nothing is sent.

    Compressors work on the update, taken in float64, of the counted weights that are sent.
    """
    model, shape, compression = device.model, device.shape, device.method.compression
    wire = device.wire if orders.code is None else replace(device.wire, code=orders.code)
    state, sent = model.state_array, sub_model.sent
    if sent is not None and not (sub_model.held is sent and sub_model.moves is sent):  # else the rest is zero already
        state[model.prunable] *= sent
    slot = device.memory_slots[0].name if device.memory_slots else None
    # What is exact leaves nothing to remember; but it may have to bring what earlier, smaller codes have left.
    if compression("exact", wire) and (orders.code is None or slot is None or not memory[slot].any()):
        num_kept = shape.prunable_weights if sent is None else int(np.count_nonzero(sent))
        return _Encoded(float(compression("bits", wire, shape.fixed_weights + num_kept)), None, 0.0, num_kept)
    index, places = device.weight_index, None
    if sent is not None:
        is_sent = np.ones(shape.num_state, dtype=bool)
        is_sent[shape.prunable] = sent
        places = np.flatnonzero(is_sent[index])
        index = index[places]
    starts = np.concatenate([[0], np.searchsorted(index, device.tensor_stops)])
    base = received[index].astype(np.float64)
    kept = None if slot is None else memory[slot] if places is None else memory[slot][places]
    update = state[index].astype(np.float64) - base
    rng = streams.compression[orders.device]
    decoded, message, new = transmit(compression.component, compression.options, wire, update, starts, kept, rng)
    state[index] = (base + decoded).astype(state.dtype)
    if slot is not None and new is not None:
        if places is not None:
            new, part = memory[slot].copy(), new
            new[places] = part
        memory[slot] = new
    return _Encoded(float(message.bits), message, _error(update if kept is None else update + kept, decoded))


def _error(wanted: Array, sent: Array) -> float:
    """‖wanted − sent‖² / ‖wanted‖²; 0 if nothing was wanted."""
    with np.errstate(invalid="ignore", over="ignore"):
        energy = float(np.square(wanted).sum())
        return float(np.square(wanted - sent).sum()) / energy if energy > 0.0 else 0.0
