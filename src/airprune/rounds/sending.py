"""Processing of an update before a device sends it: privacy, then compression."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from airprune.components.component import ModelShape, Owner, Slot
from airprune.methods.compression.base import Message, transmit
from airprune.methods.masking.base import SubModel
from airprune.rounds.messages import Orders

if TYPE_CHECKING:
    from airprune.rounds.local import Device, Streams

Array = np.ndarray
SLOTS = OWN, BEGUN = "personal.layers", "personal.begun"


def make_private(
    device: Device, received: Array, sub_model: SubModel, clip_norm: float, orders: Orders, streams: Streams
) -> None:
    """Clips the update of all that will be sent, biases included, and adds the device's noise; in place.

    Where the sum of t updates is to have the noise, a device adds 1/√t of it.
    """
    is_sent = np.ones(device.shape.num_state, dtype=bool)
    is_sent[device.shape.personal] = False
    if sub_model.freezes:
        is_sent &= ~device.shape.frozen_outside(sub_model.first_trained, sub_model.last_trained)
    if sub_model.sent is not None:
        is_sent[device.shape.prunable] &= np.asarray(sub_model.sent, dtype=bool)
    state, noise_multiplier = device.model.state_array, device.settings.noise_multiplier
    base = received[is_sent].astype(np.float64)
    update = state[is_sent].astype(np.float64) - base
    clipped = clip(update, clip_norm)
    if device.settings.noise_of_sum:
        noise_multiplier /= orders.hidden_among**0.5
    if noise_multiplier:
        clipped = clipped + noise_multiplier * clip_norm * streams.noise(orders.device, len(update))
    if clipped is not update:
        state[is_sent] = (base + clipped).astype(state.dtype)


class Encoded(NamedTuple):
    """An encoded update; the fields are those of an `Upload`."""

    sent_bits: float
    message: Message | None
    code_error: float
    num_kept: int | None = None


def encode(
    device: Device,
    received: Array,
    sub_model: SubModel,
    memory: dict[str, Array],
    orders: Orders,
    streams: Streams,
) -> Encoded:
    """Leaves in the model what the edge will decode, zero where nothing is sent.

    Compressors work on the update, taken in float64, of the counted weights that are sent.
    """
    model, shape, compression = device.model, device.shape, device.method.compression
    wire = device.wire if orders.code is None else replace(device.wire, code=orders.code)
    state, sent = model.state_array, sub_model.sent
    if sent is not None and not (sub_model.held is sent and sub_model.moves is sent):  # else the rest is zero already
        state[model.prunable] *= sent
    slot = device.memory_slots[0].name if device.memory_slots else None
    is_sent = None if sent is None and not sub_model.freezes else _sent_weights(shape, sub_model)
    # What is exact leaves nothing to remember; but it may have to bring what earlier, smaller codes have left.
    if compression.exact(wire) and (orders.code is None or slot is None or not memory[slot].any()):
        num_kept = shape.prunable_weights if sent is None else int(np.count_nonzero(sent))
        number = shape.fixed_weights + num_kept
        if sub_model.freezes:
            assert is_sent is not None
            number = int(np.count_nonzero(is_sent))
        return Encoded(float(compression.message_bits(wire, number)), None, 0.0, num_kept)
    index, places = device.weight_index, None
    if is_sent is not None:
        places = np.flatnonzero(is_sent[index])
        index = index[places]
    starts = np.concatenate([[0], np.searchsorted(index, device.tensor_stops)])
    base = received[index].astype(np.float64)
    kept = None if slot is None else memory[slot] if places is None else memory[slot][places]
    update = state[index].astype(np.float64) - base
    rng = streams.compression[orders.device]
    decoded, message, new = transmit(compression, wire, update, starts, kept, rng)
    state[index] = (base + decoded).astype(state.dtype)
    if slot is not None and new is not None:
        if places is not None:
            new, part = memory[slot].copy(), new
            new[places] = part
        memory[slot] = new
    return Encoded(float(message.bits), message, _error(update if kept is None else update + kept, decoded))


def _sent_weights(shape: ModelShape, sub_model: SubModel) -> Array:
    """True for the counted weights that are sent; frozen layers stay as the edge has them.  [num_state] bool"""
    is_sent = shape.is_weight.copy()
    if sub_model.sent is not None:
        is_sent[shape.prunable] &= np.asarray(sub_model.sent, dtype=bool)
    if sub_model.freezes:
        is_sent &= ~shape.frozen_outside(sub_model.first_trained, sub_model.last_trained)
    return is_sent


def _error(wanted: Array, sent: Array) -> float:
    """‖wanted − sent‖² / ‖wanted‖²; 0 if nothing was wanted."""
    with np.errstate(invalid="ignore", over="ignore"):
        energy = float(np.square(wanted).sum())
        return float(np.square(wanted - sent).sum()) / energy if energy > 0.0 else 0.0


def clip(update: Array, clip_norm: float) -> Array:
    """Δ min(1, C / ‖Δ‖): the very array if it is short enough; zero if it is not finite, as after diverged training.

    Whether training diverged is information about the data, so that must not show either.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sqrt(np.square(update).sum()))
    if norm <= clip_norm:
        return update
    return update * (clip_norm / norm) if np.isfinite(norm) else np.zeros_like(update)


def secret_normals(size: int) -> Array:
    """Standard normal numbers from the operating system's randomness, by Box and Muller.  [size]

    Numpy's generators are not made to withstand an adversary that sees part of what they draw.
    """
    pairs = (size + 1) // 2
    whole = np.frombuffer(os.urandom(16 * pairs), dtype=np.uint64).reshape(2, pairs) >> np.uint64(11)
    radius = np.sqrt(-2.0 * np.log((whole[0] + 1.0) * 2.0**-53))  # of (0, 1]
    angle = 2.0 * np.pi * 2.0**-53 * whole[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]


def personal_slots(shape: ModelShape) -> tuple[Slot, ...]:
    """A device's own layers, and whether it has trained them yet: until then they are those of the received model."""
    return (
        Slot(name=OWN, owner=Owner.DEVICE, shape=lambda s: (s.num_personal,), dtype="<f8"),
        Slot(name=BEGUN, owner=Owner.DEVICE, shape=lambda s: (1,), dtype="|i1"),
    )


def with_own_layers(model: Array, memory: Mapping[str, Array], shape: ModelShape) -> Array:
    """The model as a device with this memory uses it.  [num_state]"""
    if not memory[BEGUN][0]:
        return model
    own = model.copy()
    own[shape.personal] = memory[OWN]
    return own


def take_own_layers(state: Array, received: Array, shape: ModelShape) -> dict[str, Array]:
    """Puts the received layers back into the state, in place; the slots that hold the device's own."""
    own = state[shape.personal].astype(np.float64)
    state[shape.personal] = received[shape.personal]
    return {OWN: own, BEGUN: np.ones(1, dtype=np.int8)}


def samples_like(train_y: Array, test_y: Array, count: int, rng: np.random.Generator) -> Array:
    """Indices of `count` test samples with the class proportions of a device's own.

    Classes without test samples are excluded; a device that has only such gets any samples.  [count]
    """
    num_classes = int(max(train_y.max(), test_y.max())) + 1
    there = np.bincount(test_y, minlength=num_classes)
    odds = np.bincount(train_y, minlength=num_classes) * (there > 0.0)
    if not odds.any():
        odds = there
    label = rng.choice(num_classes, size=count, p=odds / odds.sum())
    order = np.argsort(test_y, kind="stable")
    starts = np.concatenate([[0], np.cumsum(there)[:-1]])
    drawn: Array = order[starts[label] + np.floor(rng.random(count) * there[label]).astype(np.int64)]
    return drawn
