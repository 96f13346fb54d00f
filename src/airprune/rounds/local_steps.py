"""The steps that a device takes inside its sub-model, Eq. (8), as a generator that asks for every gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from airprune.methods.masking.base import SubModel
from airprune.models.kernels import native
from airprune.models.layout import places
from airprune.rounds.messages import Orders

if TYPE_CHECKING:
    from airprune.rounds.device import Device

Array = np.ndarray
Step = Callable[[Array, Array], None]


class GradientRequest(NamedTuple):
    """∇F of a device's model on a minibatch is to be left in its `gradient_array`; the answer is F."""

    device: Device
    batch: Array


def train_units(
    device: Device,
    received: Array,
    orders: Orders,
    sub_model: SubModel,
    batches: list[Array],
    memory: Mapping[str, Array],
) -> Generator[GradientRequest, float, Trained]:
    """Trains the units of a sub-model as a model of their own where that can be done; else all, with zeros."""
    assert sub_model.units is not None
    small = None if sub_model.collect else device.smaller(sub_model.units)
    if small is None:
        return (yield from train(device, received, orders, sub_model, batches, memory))
    state, scale = device.model.state_array, np.ones(device.model.num_state)
    place = places(device.model, small.model, sub_model.units)
    if sub_model.scale is not None:
        scale[device.model.prunable] = sub_model.scale
    small.model.load(state[place])
    inside = SubModel(scale=None if sub_model.scale is None else scale[place][small.model.prunable])
    trained = yield from train(small, received[place], orders, inside, batches, memory)
    state[place] = small.model.state_array
    return trained


class Trained(NamedTuple):
    loss: float
    num_samples: int
    num_steps: int
    gradient_sq_max: float
    gradient_sum: Array | None


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
    step = OPTIMISERS[settings.optimizer](orders.learning_rate, settings.momentum, 0.0)
    gradient = model.gradient_array
    moves, masked = sub_model.moves, gradient[model.prunable]
    plain = sub_model.forward is None and sub_model.scale is None
    power = sub_model.collect
    gradient_sum = np.zeros_like(gradient) if power else None
    does_more = settings.diagnostics or settings.weight_decay or settings.momentum or device.adjusts or power
    is_bare = plain and not does_more and gradient.dtype == np.float32 and not native.trouble
    loss_sum, count, gradient_sq_max = 0.0, 0, 0.0
    for number, batch in enumerate(batches):
        if plain:
            loss, used = (yield GradientRequest(device, batch)), None
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
                objective.adjust(gradient, weights, parameters, memory)
            if moves is not None and (settings.weight_decay or device.adjusts):
                _mask(masked, moves)
            if sub_model.forward_only and moves is not None:
                _step_inside(moves, weights[model.prunable], partial(step, weights, gradient))
            else:
                step(weights, gradient)
    return Trained(
        loss=loss_sum / count,
        num_samples=count,
        num_steps=len(batches),
        gradient_sq_max=gradient_sq_max,
        gradient_sum=gradient_sum,
    )


def _diverging() -> np.errstate:
    """Around arithmetic on weights, never around a `yield`: training that diverges shows in the loss."""
    return np.errstate(over="ignore", invalid="ignore")


def moving_parameters(device: Device, sub_model: SubModel) -> Array | None:
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
    loss = yield GradientRequest(device, batch)
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


# Optimisers. Gradients arrive masked, so none ever moves a pruned weight.


def add_scaled(target: Array, values: Array, factor: float) -> None:
    """target ← target + factor · values, each entry rounded once; the same bits from the native library and torch."""
    if target.dtype == np.float32 and not native.trouble:
        native.add_scaled(target, values, factor)
        return
    import torch  # which devices with the native kernel do without

    torch.from_numpy(target).add_(torch.from_numpy(values), alpha=factor)


def sgd(learning_rate: float, momentum: float, weight_decay: float) -> Step:
    """w ← w − η v, v ← β v + g + decay·w: Eq. (8) with β = 0. Starts from zero on every device and round.

    A pruned weight is 0 with gradient 0, so decay and momentum leave it there.
    """
    if not momentum and not weight_decay:
        return _descent(learning_rate)
    velocity: Array | None = None

    def step(weights: Array, gradient: Array) -> None:
        nonlocal velocity
        if weight_decay:
            gradient = gradient.copy()
            add_scaled(gradient, weights, weight_decay)
        if momentum:
            if velocity is None:
                velocity = gradient.copy()
            else:
                velocity *= momentum
                velocity += gradient
            gradient = velocity
        add_scaled(weights, gradient, -learning_rate)

    return step


@lru_cache(maxsize=1)
def _descent(learning_rate: float) -> Step:
    """w ← w − η g: one for all devices of a round, since it remembers nothing."""

    def step(weights: Array, gradient: Array) -> None:
        add_scaled(weights, gradient, -learning_rate)

    return step


def adam(learning_rate: float, momentum: float, weight_decay: float) -> Step:
    """Adam with β1 = 0.9 (or `momentum` if given), β2 = 0.999, ε = 1e-8, and decay added to the gradient. By torch."""
    import torch

    beta1, beta2, epsilon = momentum or 0.9, 0.999, 1e-8
    first: torch.Tensor | None = None
    second: torch.Tensor | None = None
    count = 0

    def step(weights_array: Array, gradient_array: Array) -> None:
        nonlocal first, second, count
        weights, gradient = torch.from_numpy(weights_array), torch.from_numpy(gradient_array)
        if weight_decay:
            gradient = gradient.add(weights, alpha=weight_decay)
        if first is None or second is None:
            first, second = torch.zeros_like(weights), torch.zeros_like(weights)
        count += 1
        first.lerp_(gradient, 1.0 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        scale = learning_rate * math.sqrt(1.0 - beta2**count) / (1.0 - beta1**count)
        weights.addcdiv_(first, second.sqrt().add_(epsilon * math.sqrt(1.0 - beta2**count)), value=-scale)

    return step


OPTIMISERS: dict[str, Callable[[float, float, float], Step]] = {"sgd": sgd, "adam": adam}
