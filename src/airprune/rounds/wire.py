"""The format of a link: how many bytes an update takes, and an edge's broadcast as bytes.

An upload is a header, a few statistics, what is not counted (biases, buffers), a bit per prunable weight if only some
are sent, and the update as its encoder made it. `airprune.deployment.uploads` writes and reads them; how long one will
be is known before anybody trains, so planner and clock can charge just that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from airprune.components.component import ModelShape
from airprune.errors import WorkFailed
from airprune.methods.compression.base import Compression, Wire
from airprune.methods.compression.packing import num_bytes
from airprune.methods.masking import Masking
from airprune.rounds.messages import Broadcast

Array = np.ndarray

HEADER_BYTES = 48
STATISTICS_BYTES = 56

# Lowest and highest layer that a device trains and sends; None: the top.
Part = tuple[int, int | None]
WHOLE_MODEL: Part = (0, None)

_VALUES = "values/"


@dataclass(frozen=True, kw_only=True, eq=False)
class Codec:
    """The format that both ends of a link must share.

    Attributes:
      float64: whether the model's state is in double precision.
    """

    compression: Compression
    wire: Wire
    shape: ModelShape
    float64: bool = False

    def coded(self, code: int | None) -> Wire:
        """The wire with the planner's code, if it has chosen one."""
        return self.wire if code in (None, self.wire.code) else replace(self.wire, code=code)

    def sends_values(self, code: int | None) -> bool:
        """True if the weights travel as they are, and not as an encoder's message."""
        return self.compression.exact(self.coded(code))

    @cached_property
    def state_dtype(self) -> np.dtype:
        return np.dtype("<f8" if self.float64 else "<f4")

    @cached_property
    def value_dtype(self) -> np.dtype:
        """Format of weights that travel as they are: the shortest lossless one with the bits charged."""
        return np.dtype("<f8" if self.float64 or self.wire.value_bits > 32 else "<f4")

    @cached_property
    def stored(self) -> Wire:
        """The wire with what an exact value takes when it travels."""
        exact = self.sends_values(self.wire.code)
        bits = 8.0 * self.value_dtype.itemsize if exact else 64.0 if self.wire.value_bits > 32 else 32.0
        return replace(self.wire, value_bits=bits)

    @cached_property
    def rest_index(self) -> Array:
        """Places of biases and buffers in the state; layers that stay on their devices do not travel."""
        rest = ~self.shape.is_weight
        rest[self.shape.personal] = False
        return np.flatnonzero(rest)

    def frozen(self, part: Part) -> Array | None:
        """Returns the entries of the layers outside a part, which are not sent; None if all are.  [num_state] bool"""
        first, last = part
        if not first and last in (None, self.shape.num_layers - 1):
            return None
        return self.shape.frozen_outside(first, last)

    def rest_of(self, part: Part) -> Array:
        """Returns the places of biases and buffers that a device sends which trains this part."""
        frozen = self.frozen(part)
        return self.rest_index if frozen is None else self.rest_index[~frozen[self.rest_index]]

    def sent_index(self, mask: Array | None, part: Part = WHOLE_MODEL) -> Array:
        """Returns the places in the state of the counted weights that are sent."""
        frozen = self.frozen(part)
        if mask is None and frozen is None:
            return self._weights_index
        sent = self.shape.is_weight.copy()
        if mask is not None:
            sent[self.shape.prunable] &= mask
        if frozen is not None:
            sent &= ~frozen
        return np.flatnonzero(sent)

    @cached_property
    def _weights_index(self) -> Array:
        index = np.flatnonzero(self.shape.is_weight)
        index.flags.writeable = False
        return index

    def starts(self, index: Array) -> Array:
        """Offsets of the tensors among the sent weights."""
        stops = [tensor.stop for tensor in self.shape.tensors if tensor.counted]
        return np.concatenate([[0], np.searchsorted(index, stops)])

    @property
    def frame_bytes(self) -> int:
        """Bytes that every upload of a whole model has, whatever its weights."""
        return HEADER_BYTES + STATISTICS_BYTES + self.rest_index.size * self.state_dtype.itemsize

    def frozen_bytes(self, part: Part) -> int:
        """Returns by how much that is less where only a part is trained and sent."""
        return (self.rest_index.size - self.rest_of(part).size) * self.state_dtype.itemsize

    @property
    def mask_bytes(self) -> int:
        return num_bytes(self.shape.prunable_weights)

    def update_bytes(self, num_sent: int, code: int | None) -> int:
        """Bytes of an update of so many counted weights; encoders write their exact values in 32 or 64 bits."""
        if self.sends_values(code):
            return num_sent * self.value_dtype.itemsize
        stored = self.stored if code is None else replace(self.stored, code=code)
        return math.ceil(self.compression.message_bits(stored, num_sent) / 8)


def upload_size(codec: Codec, num_sent: int, *, code: int | None, has_mask: bool, part: Part = WHOLE_MODEL) -> int:
    """Bytes of an upload of so many counted weights, without reports: for planner, clock, encoder and checks."""
    framed = codec.frame_bytes - codec.frozen_bytes(part)
    return framed + codec.update_bytes(num_sent, code) + (codec.mask_bytes if has_mask else 0)


def shared_mask_of(masking: Masking, shared: Array | None, round_index: int, codec: Codec) -> Array | None:
    """Returns the mask that uploads need not repeat: all devices share it, and none is charged for one of its own."""
    if shared is None or shared.dtype != bool or shared.shape != (codec.shape.prunable_weights,):
        return None
    charges = masking.charges(round_index, codec.shape, codec.wire.value_bits)
    return None if charges.uplink_bits else shared


def broadcast_to_bytes(broadcast: Broadcast) -> bytes:
    arrays = {"model": broadcast.model, **{_VALUES + name: array for name, array in broadcast.values.items()}}
    mask = broadcast.mask
    if mask is not None and mask.dtype != bool:
        return packed({**arrays, "told": mask}, {"mask_size": None})
    if mask is not None:
        arrays["mask"] = np.packbits(mask)
    return packed(arrays, {"mask_size": None if mask is None else mask.size})


def broadcast_from_bytes(data: bytes) -> Broadcast:
    arrays, about = unpacked(data)
    mask = arrays.get("told")
    if about["mask_size"] is not None:
        mask = np.unpackbits(arrays["mask"], count=about["mask_size"]).astype(bool)
    values = {name.removeprefix(_VALUES): array for name, array in arrays.items() if name.startswith(_VALUES)}
    return Broadcast(model=arrays["model"], mask=mask, values=values)


def packed(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> bytes:
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return bytes(safetensors.numpy.save(contiguous, {"about": json.dumps(about)}))


def unpacked(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    try:
        head_size = int.from_bytes(data[:8], "little")
        about = json.loads(json.loads(data[8 : 8 + head_size])["__metadata__"]["about"])
        return safetensors.numpy.load(data), about
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise WorkFailed(f"A message of {len(data):,} bytes cannot be read ({type(error).__name__}).") from None
