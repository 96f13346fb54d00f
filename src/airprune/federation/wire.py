"""Messages as bytes, for when edge and device are not in one process.

An upload travels as its encoder made it: the payload of the counted weights, everything else (biases, buffers) as it
is, one bit per prunable weight for the mask. Whoever receives it decodes to the very state that the sender keeps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from airprune.components import ModelShape
from airprune.compression.base import Message, Wire
from airprune.errors import WorkFailed
from airprune.federation.messages import Broadcast, Orders, Upload
from airprune.federation.method import Chosen

Array = np.ndarray

_NUMBERS = (
    "code_error",
    "loss",
    "num_samples",
    "gradient_sq_max",
    "gradient_noise_sq",
    "smoothness",
    "pruning_error_sq",
)
_MEMORY, _REPORT, _VALUES = "memory/", "report/", "values/"


@dataclass(frozen=True, kw_only=True, eq=False)
class Codec:
    """What both ends of a link must agree on."""

    compression: Chosen
    wire: Wire
    shape: ModelShape

    def sent_index(self, mask: Array | None) -> Array:
        """Where the counted weights that are sent lie in the state."""
        sent = self.shape.is_weight
        if mask is not None:
            sent = sent.copy()
            sent[self.shape.prunable] &= mask
        return np.flatnonzero(sent)

    def starts(self, index: Array) -> Array:
        """Offsets of the tensors among the sent weights."""
        stops = [tensor.stop for tensor in self.shape.tensors if tensor.counted]
        return np.concatenate([[0], np.searchsorted(index, stops)])


def broadcast_to_bytes(broadcast: Broadcast) -> bytes:
    arrays = {"model": broadcast.model, **{_VALUES + name: array for name, array in broadcast.values.items()}}
    mask = broadcast.mask
    if mask is not None and mask.dtype != bool:
        return _packed({**arrays, "told": mask}, {"mask_size": None})
    if mask is not None:
        arrays["mask"] = np.packbits(mask)
    return _packed(arrays, {"mask_size": None if mask is None else mask.size})


def broadcast_from_bytes(data: bytes) -> Broadcast:
    arrays, about = _unpacked(data)
    mask = arrays["told"] if "told" in arrays else _mask(arrays, about)
    return Broadcast(model=arrays["model"], mask=mask, values=_under(_VALUES, arrays))


def orders_to_bytes(orders: Orders) -> bytes:
    plain = {field.name: getattr(orders, field.name) for field in fields(orders) if field.name != "memory"}
    return _packed({_MEMORY + name: array for name, array in orders.memory.items()}, plain)


def orders_from_bytes(data: bytes) -> Orders:
    arrays, about = _unpacked(data)
    return Orders(**about, memory=_under(_MEMORY, arrays))


def upload_to_bytes(upload: Upload, codec: Codec) -> bytes:
    """Without the memory, which stays on the device."""
    index = codec.sent_index(upload.mask)
    rest = np.flatnonzero(~codec.shape.is_weight)
    arrays = {"rest": upload.state[rest], **{_REPORT + name: array for name, array in upload.report.items()}}
    if upload.message is None:
        arrays["values"] = upload.state[index]
    else:
        arrays["payload"] = np.frombuffer(upload.message.payload, np.uint8)
    if upload.mask is not None:
        arrays["mask"] = np.packbits(upload.mask)
    about: dict[str, Any] = {name: getattr(upload, name) for name in _NUMBERS}
    about |= {"bits": upload.sent_bits, "mask_size": None if upload.mask is None else upload.mask.size}
    return _packed(arrays, about)


def upload_from_bytes(data: bytes, received: Array, codec: Codec) -> Upload:
    """What the edge that had sent `received` makes of it: the sender's own state, to the bit."""
    arrays, about = _unpacked(data)
    mask = _mask(arrays, about)
    index = codec.sent_index(mask)
    state = np.zeros_like(received)
    state[~codec.shape.is_weight] = arrays["rest"]
    if "values" in arrays:
        state[index] = arrays["values"]
        message = None
    else:
        message = Message(arrays["payload"].tobytes(), about["bits"], len(index))
        decoded = codec.compression("decode", codec.wire, message, codec.starts(index))
        state[index] = (received[index].astype(np.float64) + decoded).astype(state.dtype)
    return Upload(
        state=state,
        mask=mask,
        sent_bits=about["bits"],
        message=message,
        report=_under(_REPORT, arrays),
        memory={},
        **{name: about[name] for name in _NUMBERS},
    )


def _mask(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> Array | None:
    if about["mask_size"] is None:
        return None
    return np.unpackbits(arrays["mask"], count=about["mask_size"]).astype(bool)


def _under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _packed(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> bytes:
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return bytes(safetensors.numpy.save(contiguous, {"about": json.dumps(about)}))


def _unpacked(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    try:
        head_size = int.from_bytes(data[:8], "little")
        about = json.loads(json.loads(data[8 : 8 + head_size])["__metadata__"]["about"])
        return safetensors.numpy.load(data), about
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise WorkFailed(f"A message of {len(data):,} bytes cannot be read ({type(error).__name__}).") from None
