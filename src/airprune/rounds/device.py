"""One edge round of one device: choose, train, encode. Lines 5–9 of Algorithm 1.

`device_round` is a pure function of what the device received, its orders, its memory and the address of its randomness.
Inside it is `round_in_steps`, a generator that stops at every gradient it needs, so that those of several devices may
be computed together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from airprune.methods.masking.base import DeviceView, SubModel
from airprune.methods.objectives.base import LocalRun
from airprune.methods.optimisers.base import Step
from airprune.methods.optimisers.sgd import add_scaled
from airprune.models.kernels import native
from airprune.models.kernels.base import TrainedPart
from airprune.models.layout import LocalModel, Part, places
from airprune.rounds.local import Device, Streams, Trained, minibatches
from airprune.rounds.messages import Broadcast, Orders, Upload
from airprune.rounds.optimisers import gradients_in_update
from airprune.rounds.sending import encode, make_private, take_own_layers, with_own_layers
from airprune.rounds.trained_part import Frozen, moving_parameters, round_frozen, trained_part, with_features

Array = np.ndarray


class GradientRequest(NamedTuple):
    """∇F of a device's model on a minibatch is to be left in its `gradient_array`; the answer is F.

    Attributes:
      part: what of the model it is wanted of; None for everything.
    """

    device: Device
    batch: Array
    part: TrainedPart | None = None

    def answer(self) -> float:
        """Computes it on the device alone."""
        gradient = self.device.gradient
        return gradient(self.batch) if self.part is None else gradient.of_part(self.batch, self.part)


def device_round(device: Device, received: Broadcast, orders: Orders, *, samples: Array, streams: Streams) -> Upload:
    """One edge round of one device on its samples."""
    steps = round_in_steps(device, received, orders, samples=samples, streams=streams)
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(wanted.answer())
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
    if orders.first_trained > sub_model.first_trained:
        sub_model = replace(sub_model, first_trained=orders.first_trained)
    if orders.last_trained is not None and orders.last_trained < device.shape.num_layers - 1:
        sub_model = replace(sub_model, last_trained=orders.last_trained)
    if sub_model.start is not None:
        model.state_array[model.prunable] = sub_model.start
    error_sq = _hold(model, sub_model.held)

    memory = {**orders.memory, **received.values}
    steps = _way_to_train(device, streams) if sub_model.units is None else partial(train_units, streams=streams)
    if sub_model.freezes and sub_model.frozen_bits is not None:
        round_frozen(model, device.shape, sub_model)
    trained = yield from steps(device, received.model, orders, sub_model, batches, memory)
    if sub_model.freezes and sub_model.frozen_bits is not None:
        frozen = device.shape.frozen_outside(sub_model.first_trained, sub_model.last_trained)
        model.state_array[frozen] = received.model[frozen]
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
            gradients=float(gradients_in_update(settings.optimizer.name, settings.momentum, trained.num_steps)),
            moves=moving_parameters(device, sub_model),
            loss=trained.loss,
            loss_sq=trained.loss_sq,
            num_samples=trained.num_samples,
            gradient_sum=trained.gradient_sum,
        )
        report = dict(sub_model.report)
        for part in device.method.local_parts:
            before = dict(memory)
            memory |= part.finish(run, memory)
            report |= part.report(run, before, memory)
    if device.shape.num_personal:
        memory |= take_own_layers(model.state_array, common, device.shape)
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
        sub_model=sub_model,
        first_trained=sub_model.first_trained,
        last_trained=sub_model.last_trained,
    )


def train(
    device: Device,
    received: Array,
    orders: Orders,
    sub_model: SubModel,
    batches: list[Array],
    memory: Mapping[str, Array],
) -> Generator[GradientRequest, float, Trained]:
    """Minibatch steps inside the sub-model, Eq. (8). Steps, momentum and decay move only what may move."""
    model, settings, objective = device.model, device.settings, device.method.objective
    rate, rates = orders.learning_rate, None
    if settings.step_rates is not None:
        rates = settings.step_rates.of_steps(rate, orders.round_index, len(batches))
    gradient = model.gradient_array
    moves, masked = sub_model.moves, gradient[model.prunable]
    plain = sub_model.forward is None and sub_model.scale is None
    part, frozen = trained_part(model, sub_model), None
    moving = slice(0, model.num_parameters)
    if sub_model.freezes:
        frozen = Frozen(model, sub_model.first_trained, sub_model.last_trained)
        frozen.restore_buffers(model.state_array, received)
        moving = frozen.moving
    if part is not None and plain and settings.augmentation is None:
        part = with_features(device, part, batches)
    step = _steps(device, rate, sub_model, moving)
    power, clips = sub_model.collect, settings.clips_gradients
    decay = 0.0 if settings.optimizer.decays else settings.weight_decay
    gradient_sum = np.zeros_like(gradient) if power else None
    does_more = settings.diagnostics or decay or settings.momentum or device.adjusts or power or clips
    is_bare = plain and not does_more and gradient.dtype == np.float32 and not native.trouble
    loss_sum, loss_sq_sum, count, gradient_sq_max = 0.0, 0.0, 0, 0.0
    for number, batch in enumerate(batches):
        if rates is not None:
            rate = rates[number]
        if plain:
            loss, used = (yield GradientRequest(device, batch, part)), None
        else:
            loss, used = yield from _gradient_inside(device, sub_model, batch, number, part)
        loss_sum += loss * len(batch)
        loss_sq_sum += loss * loss * len(batch)
        count += len(batch)
        weights = model.state_array[: model.num_parameters]  # not sooner: see `RowModel.loaded`
        if is_bare:  # as below, without a warning of numpy to be held back
            if moves is not None:
                _mask(masked, moves)
            step(weights[moving], gradient[moving], rate)
            continue
        with _diverging():
            if used is not None and sub_model.forward_only:
                moves = used if sub_model.moves is None else used & sub_model.moves
            if frozen is not None and sub_model.teaches:
                frozen.clear(gradient)
            if gradient_sum is not None:
                gradient_sum += gradient**power
            if moves is not None:
                _mask(masked, moves)
            if settings.diagnostics:
                gradient_sq_max = max(gradient_sq_max, device.constants.squared_norm(gradient))
            if decay and not clips:
                add_scaled(gradient, weights, decay)
            if device.adjusts:
                parameters = received[: model.num_parameters]
                objective.adjust(gradient, weights, parameters, memory)
            if moves is not None and (decay or device.adjusts):
                _mask(masked, moves)
            if frozen is not None:
                frozen.clear(gradient)
            if clips:  # the gradient of the whole objective; decay belongs to the step
                clip(gradient[moving], norm=settings.clip_gradient_norm, value=settings.clip_gradient_value)
                if decay:
                    add_scaled(gradient, weights, decay)
                    if moves is not None:
                        _mask(masked, moves)
                    if frozen is not None:
                        frozen.clear(gradient)
            if sub_model.forward_only and moves is not None:
                _step_inside(moves, weights[model.prunable], partial(step, weights[moving], gradient[moving], rate))
            else:
                step(weights[moving], gradient[moving], rate)
    if frozen is not None and sub_model.teaches:
        frozen.restore_buffers(model.state_array, received)
    return Trained(
        loss=loss_sum / count,
        loss_sq=loss_sq_sum / count,
        num_samples=count,
        num_steps=len(batches),
        gradient_sq_max=gradient_sq_max,
        gradient_sum=gradient_sum,
    )


def train_units(
    device: Device,
    received: Array,
    orders: Orders,
    sub_model: SubModel,
    batches: list[Array],
    memory: Mapping[str, Array],
    streams: Streams,
) -> Generator[GradientRequest, float, Trained]:
    """Trains the units of a sub-model as a model of their own where that can be done; else all, with zeros."""
    assert sub_model.units is not None
    small = None if sub_model.collect else device.smaller(sub_model.units)
    if small is None:
        way = _way_to_train(device, streams)
        return (yield from way(device, received, orders, sub_model, batches, memory))
    state, scale = device.model.state_array, np.ones(device.model.num_state)
    place = places(device.model, small.model, sub_model.units)
    if sub_model.scale is not None:
        scale[device.model.prunable] = sub_model.scale
    small.model.load(state[place])
    inside = SubModel(
        scale=None if sub_model.scale is None else scale[place][small.model.prunable],
        first_trained=sub_model.first_trained,
        last_trained=sub_model.last_trained,
    )
    trained = yield from _way_to_train(small, streams)(small, received[place], orders, inside, batches, memory)
    state[place] = small.model.state_array
    return trained


def _way_to_train(device: Device, streams: Streams) -> Callable[..., Generator[GradientRequest, float, Trained]]:
    settings = device.settings
    if settings.loop is not None:
        return partial(_by_loop, streams=streams)
    return train if settings.augmentation is None else partial(_augmented, streams=streams)


def _by_loop(
    device: Device,
    received: Array,
    orders: Orders,
    sub_model: SubModel,
    batches: list[Array],
    memory: Mapping[str, Array],
    *,
    streams: Streams,
) -> Generator[GradientRequest, float, Trained]:
    """Training by a loop of the user's, or another listed one, on the torch module; asks for no gradients."""
    from airprune.rounds.loop_round import train_by_loop  # by torch

    return train_by_loop(device, received, orders, sub_model, batches, streams)
    yield  # a generator as the other ways


def _augmented(
    device: Device,
    received: Array,
    orders: Orders,
    sub_model: SubModel,
    batches: list[Array],
    memory: Mapping[str, Array],
    *,
    streams: Streams,
) -> Generator[GradientRequest, float, Trained]:
    """Minibatch steps on augmented samples; probes before and after see them as they are."""
    device.augment(streams.augmentation[orders.device])
    try:
        return (yield from train(device, received, orders, sub_model, batches, memory))
    finally:
        device.augment(None)


def _steps(device: Device, learning_rate: float, sub_model: SubModel, moving: slice) -> Step:
    """Returns the steps of a round's optimiser; what it would move of pruned and frozen weights is put back."""
    model, optimizer = device.model, device.settings.optimizer
    tensors: list[Part] = []
    if optimizer.by_tensor:
        inside = [p for p in model.parts if moving.start <= p.start and p.stop <= moving.stop]
        tensors = [replace(part, start=part.start - moving.start) for part in inside]
    step = optimizer.begin(device.settings.steps(learning_rate, tensors))
    may_move = None if optimizer.stays else moving_parameters(device, sub_model)
    if may_move is None:
        return step
    fixed = ~may_move[moving]

    def inside_mask(weights: Array, gradient: Array, rate: float) -> None:
        before = weights[fixed]
        step(weights, gradient, rate)
        weights[fixed] = before

    return inside_mask


def clip(gradient: Array, *, norm: float | None, value: float | None) -> None:
    """Clips entries to an absolute value, then scales to an L2 norm if they are longer; in place.

    Like torch.nn.utils.clip_grad_value_ and clip_grad_norm_, whose 1e-6 beside the norm is kept.
    """
    if value is not None:
        np.clip(gradient, -value, value, out=gradient)
    if norm is not None:
        length = float(np.sqrt(np.square(gradient, dtype=np.float64).sum()))
        if length + 1e-6 > norm:
            gradient *= gradient.dtype.type(norm / (length + 1e-6))


def _gradient_inside(
    device: Device, sub_model: SubModel, batch: Array, step: int, part: TrainedPart | None
) -> Generator[GradientRequest, float, tuple[float, Array | None]]:
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
    loss = yield GradientRequest(device, batch, part)
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


def _step_inside(moves: Array, weights: Array, step: Callable[[], None]) -> None:
    """Takes a step that leaves the other weights as they are: momentum of earlier steps does not reach them."""
    before = weights.copy()
    step()
    np.copyto(weights, before, where=moves == 0)


def _mask(values: Array, mask: Array) -> None:
    """values ← values ⊙ mask."""
    if values.dtype == np.float32 and not native.trouble:
        native.multiply(values, mask)
    else:
        values *= mask


def _diverging() -> np.errstate:
    """Silences overflow in arithmetic on weights, never around a `yield`: divergence shows in the loss."""
    return np.errstate(over="ignore", invalid="ignore")


def held_model(device: Device, received: Broadcast, orders: Orders, *, samples: Array, streams: Streams) -> Array:
    """Returns a device's sub-model before it trains, as its forward pass reads it: zero where it holds nothing."""
    received = _with_own_layers(device, received, orders)
    device.model.load(received.model)
    order = streams.batches.at(orders.device).permutation(samples)
    view = _View(device, received, orders, order[: device.settings.batch_size], streams)
    sub_model = device.method.masking.choose(view)
    if sub_model.start is not None:
        device.model.state_array[device.model.prunable] = sub_model.start
    _hold(device.model, sub_model.held)
    weights = device.model.state_array[device.model.prunable]
    if sub_model.forward is not None and not sub_model.forward_only:  # FjORD samples widths; its largest is held
        weights *= sub_model.forward(0, weights.copy())
    if sub_model.scale is not None:
        weights *= sub_model.scale
    return device.model.state_array.copy()


def _with_own_layers(device: Device, received: Broadcast, orders: Orders) -> Broadcast:
    if not device.shape.num_personal:
        return received
    return replace(received, model=with_own_layers(received.model, orders.memory, device.shape))


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
