"""The part of its model that a device trains: what its gradients are computed of, and what stays as it was received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from airprune.components.component import ModelShape
from airprune.errors import InvalidValue
from airprune.methods.masking.base import SubModel
from airprune.models.kernels.base import TrainedPart, visited_again
from airprune.models.layout import LocalModel

if TYPE_CHECKING:
    from airprune.rounds.local import Device

Array = np.ndarray


def trained_part(model: LocalModel, sub_model: SubModel) -> TrainedPart | None:
    """Returns what a device trains of its model; None for everything.

    Beside the layers below `first_trained` and above `last_trained`, those prunable tensors are left out of which no
    weight moves: their gradient would be masked. Only where the device holds them all: a pruned weight is 0 with a
    sign, which steps by 0 may change.
    """
    first, last = sub_model.first_trained, sub_model.last_trained
    if not sub_model.freezes and (sub_model.moves is None or sub_model.held is not None):
        return None
    if not 0 <= first < model.shape.num_layers:
        rule = f"must be the number of one of the model's {model.shape.num_layers} layers, counted from 0"
        raise InvalidValue("SubModel.first_trained", rule, first)
    if last is not None and not first <= last < model.shape.num_layers:
        rule = f"must be at least first_trained, {first}, and below {model.shape.num_layers}, the number of layers"
        raise InvalidValue("SubModel.last_trained", rule, last)
    still = set[str]()
    if sub_model.moves is not None and sub_model.held is None and _masks_alone(sub_model):
        still = {layer.name for layer in model.layers if not np.any(sub_model.moves[layer.span])}
    top = model.shape.num_layers if last is None else last
    inside = [part.start < model.num_parameters and first <= part.layer <= top for part in model.parts]
    tensors = [is_inside and part.name not in still for part, is_inside in zip(model.parts, inside, strict=True)]
    if not any(tensors):  # which no kernel computes
        tensors = inside
    if not sub_model.freezes and tensors == inside:
        return None
    return TrainedPart(tensors=tuple(tensors), first_trained=first, last_trained=last)


def _masks_alone(sub_model: SubModel) -> bool:
    """True if gradients are used for nothing but steps of the weights that move."""
    uses_all = sub_model.forward is not None or sub_model.teaches or sub_model.collect
    return not uses_all and sub_model.scale is None


def moving_parameters(device: Device, sub_model: SubModel) -> Array | None:
    """Returns which parameters a round may change; None for all.  [num_parameters] bool"""
    if sub_model.moves is None and not sub_model.freezes:
        return None
    moving = np.ones(device.model.num_parameters, dtype=bool)
    if sub_model.moves is not None:
        moving[device.shape.prunable] = sub_model.moves
    if sub_model.freezes:
        moving &= ~device.shape.frozen_outside(sub_model.first_trained, sub_model.last_trained)[: len(moving)]
    return moving


def with_features(device: Device, part: TrainedPart, batches: Sequence[Array]) -> TrainedPart:
    """Returns the part with features of the round's samples, where they are visited again and the memory suffices."""
    most_bytes = device.feature_bytes
    samples = visited_again(batches) if most_bytes and part.first_trained else None
    return part if samples is None else device.gradient.keep_features(part, samples, most_bytes)


def round_frozen(model: LocalModel, shape: ModelShape, sub_model: SubModel) -> None:
    """Rounds the weights of the layers that are not trained to `frozen_bits` each; biases and buffers stay.

    Per tensor, to multiples of 2 max|w| / (2^(b − 1) − 1), which b bits hold: of 8 bits 127 steps from end to end.
    """
    assert sub_model.frozen_bits is not None
    frozen = shape.frozen_outside(sub_model.first_trained, sub_model.last_trained)
    levels = 2.0 ** (sub_model.frozen_bits - 1) - 1.0
    for tensor in shape.tensors:
        if tensor.counted and frozen[tensor.start]:
            weights = model.state_array[tensor.start : tensor.stop]
            step = 2.0 * float(np.max(np.abs(weights))) / levels
            if step > 0.0 and np.isfinite(step):
                weights[:] = np.rint(weights.astype(np.float64) / step) * step


class Frozen:
    """The entries of a state outside the trained layers, which a round leaves as they were received.

    Attributes:
      moving: a stretch of the parameters that has all that may move.
    """

    def __init__(self, model: LocalModel, first_trained: int, last_trained: int | None = None) -> None:
        self._num_parameters = model.num_parameters
        last = model.shape.num_layers if last_trained is None else last_trained
        inside = [first_trained <= part.layer <= last for part in model.parts]
        pairs = list(zip(model.parts, inside, strict=True))
        self._tensors = [slice(part.start, part.stop) for part, is_inside in pairs if not is_inside]
        trained = [part for part, is_inside in pairs if is_inside and part.start < model.num_parameters]
        self.moving = slice(min(part.start for part in trained), max(part.stop for part in trained))

    def clear(self, gradient: Array) -> None:
        """Zeroes their gradient, which decay and objectives may have added to."""
        for tensor in self._tensors:
            gradient[tensor] = 0.0

    def restore_buffers(self, state: Array, received: Array) -> None:
        """Takes back what forward passes of the whole model, as those of a probe, have made of running means."""
        for tensor in self._tensors:
            if tensor.start >= self._num_parameters:
                state[tensor] = received[tensor]
