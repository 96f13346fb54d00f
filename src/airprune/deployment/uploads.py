"""A device's update as bytes: what was charged for, a header of 48 bytes, and nothing that must be trusted.

    header      magic, version, bits of a value, flags, number of reports, weights sent, code,
                digest of the model that was trained, SHA-256 (16 bytes) of all other bytes
    statistics  seven numbers
    rest        what is not counted (biases, buffers), in the model's own precision
    mask        one bit per prunable weight; absent if all are sent, or those of the mask that all devices share
    update      as the compression made it; values as they are where it is exact
    reports     arrays that are summed over devices, if the method has any

A device that was ordered to train some layers sends nothing of the others: neither rest nor update has them.

All numbers are little-endian. The reader of an upload knows what it has ordered and compares everything with it
before taking memory; whatever the bytes are, the answer is the sender's own state, bit for bit, or a `BadUpload`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from airprune.components.component import ReportKind
from airprune.deployment.bounds import MOST_STATISTIC
from airprune.deployment.digests import DIGEST_BYTES, Bytes, digest_of
from airprune.errors import InvalidValue, WorkFailed
from airprune.methods.compression.base import Message
from airprune.methods.compression.packing import num_bytes
from airprune.rounds.messages import Upload
from airprune.rounds.wire import HEADER_BYTES, STATISTICS_BYTES, WHOLE_MODEL, Codec, Part, upload_size

Array = np.ndarray

MAGIC, VERSION = b"APUP", 1

_HEADER = struct.Struct("<4sBBBBIi16s16s")
_SIGNED = HEADER_BYTES - DIGEST_BYTES
_STATISTICS = struct.Struct("<Q6d")
_REPORT = struct.Struct("<BBB")
assert (_HEADER.size, _STATISTICS.size) == (HEADER_BYTES, STATISTICS_BYTES)

# What the flags say about the mask.
_NO_MASK, _SENT_MASK, _SHARED_MASK, _FULL_MASK = range(4)

# How a report travels; the last are whole numbers that are all 0 or 1, a bit each.
_REPORTED = ("<f8", "<f4", "<i8", "<i4", "|b1")
_BITS = len(_REPORTED)
_MOST_DIMENSIONS, _MOST_NAME_BYTES = 4, 64
_MOST_ENTRIES_PER_STATE = 8


class BadUpload(WorkFailed):
    """Raised for bytes that are not the update that was ordered; the sentence says in what."""

    def __init__(self, field: str, rule: str, got: object) -> None:
        super().__init__(f"Upload.{field} {rule}, got {got}.")
        self.field = field


@dataclass(frozen=True, kw_only=True, eq=False)
class Expected:
    """Describes the upload that an edge has ordered from a device.

    Attributes:
      keep: prunable weights that it may send at the most.
      code: with which code, if the planner has chosen.
      part: lowest and highest layer that it trains and sends.
      model_digest: of the model that it was to train.
      max_bytes: of the whole upload.
      reports: kinds of the arrays that it may report, by name; None: any, as long as they are small.
      most_loss: the largest training loss, ±.
      hides: whether its values are masked words, which say nothing.
    """

    keep: int
    code: int | None
    model_digest: bytes
    max_bytes: int
    reports: Mapping[str, ReportKind] | None = None
    part: Part = WHOLE_MODEL
    most_loss: float = MOST_STATISTIC
    hides: bool = False


def upload_to_bytes(
    upload: Upload, codec: Codec, *, model_digest: bytes, shared_mask: Array | None, code: int | None = None
) -> bytes:
    """Encodes an upload without the slots, which stay on the device.

    Args:
      model_digest: of the model as it was received.
      shared_mask: the mask that need not be sent, see `shared_mask_of`.
      code: of the orders.
    """
    part = upload.first_trained, upload.last_trained
    kind, index = _mask_kind(upload.mask, shared_mask), codec.sent_index(upload.mask, part)
    sends_values = codec.sends_values(code)
    sections = [
        _STATISTICS.pack(upload.num_samples, *_numbers(upload)),
        _as_sent(upload.state[codec.rest_of(part)], codec.state_dtype),
    ]
    if kind == _SENT_MASK:
        assert upload.mask is not None
        sections.append(np.packbits(upload.mask).tobytes())
    if sends_values:
        sections.append(_as_sent(upload.state[index], codec.value_dtype))
    else:
        assert upload.message is not None, "only exact codes make no message"
        sections.append(upload.message.payload)
    size = upload_size(codec, index.size, code=code, has_mask=kind == _SENT_MASK, part=part)
    if HEADER_BYTES + sum(map(len, sections)) != size:
        rule = f"must make as many bytes of {index.size:,} weights as it counts, {codec.update_bytes(index.size, code)}"
        raise InvalidValue(f"Compression {codec.compression.name}", rule, len(sections[-1]))
    sections += [_report_to_bytes(name, array) for name, array in upload.report.items()]
    head = _HEADER.pack(
        MAGIC,
        VERSION,
        8 * codec.value_dtype.itemsize if sends_values else 0,
        kind,
        len(upload.report),
        index.size,
        -1 if code is None else code,
        model_digest,
        b"",
    )[:_SIGNED]
    return b"".join([head, digest_of(head, *sections), *sections])


def _as_sent(values: Array, dtype: np.dtype) -> bytes:
    """Returns values as they travel; masked words, which are as long, as they are."""
    return values.astype(dtype if values.dtype.kind == "f" else values.dtype.newbyteorder("<")).tobytes()


def upload_from_bytes(
    data: Bytes, received: Array, codec: Codec, *, expected: Expected, shared_mask: Array | None = None
) -> Upload:
    """Returns the upload with the sender's own weights, to the bit, at the edge that had sent `received`.

    Of an upload that hides, `state` is its masked words, zero where none are sent.

    Raises BadUpload and nothing else.

    Memory is taken for a state and what decoding it needs, whatever the bytes say.
    """
    view = memoryview(data).cast("B")
    head, part = _header(view, codec, expected), expected.part
    has_mask = head.mask_kind == _SENT_MASK
    size = upload_size(codec, head.num_sent, code=expected.code, has_mask=has_mask, part=part)
    if len(view) < size or (len(view) > size and not head.num_reports):
        raise BadUpload("length", f"must be {size:,} bytes for {head.num_sent:,} weights", f"{len(view):,}")
    sections = _Sections(view, HEADER_BYTES)
    num_samples, *numbers = _STATISTICS.unpack(sections.take(STATISTICS_BYTES))
    _check_statistics(num_samples, numbers, expected.most_loss)
    rest_index = codec.rest_of(part)
    rest = sections.take(rest_index.size * codec.state_dtype.itemsize)
    packed = sections.take(codec.mask_bytes) if has_mask else None
    mask = _mask(head, packed, codec, expected, shared_mask)
    index = codec.sent_index(mask, part)
    update = sections.take(codec.update_bytes(head.num_sent, expected.code))
    message = None
    if expected.hides:
        state, mask = _words(codec, rest, rest_index, update, index), _shared_by_all(mask, shared_mask)
    else:
        state = np.zeros_like(received)
        state[codec.shape.personal] = received[codec.shape.personal]
        if (frozen := codec.frozen(part)) is not None:  # as the device has left them, though they do not count
            state[frozen] = received[frozen]
            if mask is not None:
                state[codec.shape.prunable] *= mask
        state[rest_index] = np.frombuffer(rest, codec.state_dtype)
        with np.errstate(all="ignore"):  # what is not finite is refused below
            if codec.sends_values(expected.code):
                state[index] = np.frombuffer(update, codec.value_dtype)
            else:
                message = Message(bytes(update), _bits(codec, head), head.num_sent)
                decoded = _decoded(codec, head, message, index)
                state[index] = (received[index].astype(np.float64) + decoded).astype(state.dtype)
        if not np.isfinite(state).all():
            raise BadUpload("values", "must be finite", f"{np.count_nonzero(~np.isfinite(state)):,} that are not")
    return Upload(
        state=state,
        mask=mask,
        sent_bits=_bits(codec, head),
        message=message,
        report=_reports(sections, head.num_reports, codec, expected),
        memory={},
        num_samples=num_samples,
        first_trained=part[0],
        last_trained=None if part[1] == codec.shape.num_layers - 1 else part[1],
        **dict(zip(_NUMBERS, numbers, strict=True)),
    )


def _words(codec: Codec, rest: memoryview, rest_index: Array, update: memoryview, index: Array) -> Array:
    """Returns masked words in their places of the state; zero elsewhere.  [num_state]"""
    dtype = np.dtype(f"<u{codec.state_dtype.itemsize}")
    words = np.zeros(codec.shape.num_state, dtype=dtype)
    words[rest_index], words[index] = np.frombuffer(rest, dtype), np.frombuffer(update, dtype)
    return words


def _shared_by_all(mask: Array | None, shared_mask: Array | None) -> Array | None:
    """Returns the mask that all devices of a secure sum have; None if they send all weights."""
    if shared_mask is None:
        fits = mask is None or bool(mask.all())
    else:
        fits = bool(shared_mask.all()) if mask is None else np.array_equal(mask, shared_mask)
    if not fits:
        raise BadUpload("mask", "must be the one that all devices of a secure sum share", "another")
    return shared_mask


_NUMBERS = ("code_error", "loss", "gradient_sq_max", "gradient_noise_sq", "smoothness", "pruning_error_sq")
_ONLY_DIAGNOSED = ("gradient_sq_max", "gradient_noise_sq", "smoothness")


def _numbers(upload: Upload) -> Iterator[float]:
    return (float(getattr(upload, name)) for name in _NUMBERS)


class _Header(NamedTuple):
    mask_kind: int
    num_reports: int
    num_sent: int
    code: int | None


class _Sections:
    """The parts of an upload one after the other; never beyond its end."""

    def __init__(self, view: memoryview, start: int) -> None:
        self.view, self.start = view, start

    @property
    def left(self) -> int:
        return len(self.view) - self.start

    def take(self, size: int) -> memoryview:
        if size > self.left:
            raise BadUpload("length", f"must leave {size:,} bytes for what its reports announce", f"{self.left:,}")
        part = self.view[self.start : self.start + size]
        self.start += size
        return part


def _header(view: memoryview, codec: Codec, expected: Expected) -> _Header:
    """Reads the header if it is as ordered; anything else is refused before anything is read."""
    if not HEADER_BYTES <= len(view) <= expected.max_bytes:
        rule = f"must be between {HEADER_BYTES} and {expected.max_bytes:,} bytes"
        raise BadUpload("length", rule, f"{len(view):,}")
    magic, version, bits, kind, num_reports, num_sent, code, model, digest = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise BadUpload("magic", f"must be {MAGIC.decode()}", magic.hex())
    if version != VERSION:
        raise BadUpload("version", f"must be {VERSION}", version)
    if digest != digest_of(view[:_SIGNED], view[HEADER_BYTES:]):
        raise BadUpload("digest", "must be that of its bytes", digest.hex())
    if model != expected.model_digest:
        raise BadUpload("model", f"must be the one that was sent, {expected.model_digest.hex()}", model.hex())
    ordered = -1 if expected.code is None else expected.code
    if code != ordered:
        raise BadUpload("code", f"must be {ordered}, as ordered", code)
    value_bits = 8 * codec.value_dtype.itemsize if codec.sends_values(expected.code) else 0
    if bits != value_bits:
        raise BadUpload("bits", f"of a value must be {value_bits}", bits)
    if kind > _FULL_MASK:
        raise BadUpload("flags", f"must be at most {_FULL_MASK}", kind)
    fixed, prunable = _weights_of(codec, expected.part)
    most = fixed + min(prunable, expected.keep)
    if not fixed <= num_sent <= most:
        rule = f"must be between {fixed:,} and {most:,}"
        raise BadUpload("weights", rule, f"{num_sent:,}")
    return _Header(kind, num_reports, num_sent, expected.code)


def _weights_of(codec: Codec, part: Part) -> tuple[int, int]:
    """Returns how many weights of a part are always sent, and how many are prunable."""
    shape, frozen = codec.shape, codec.frozen(part)
    if frozen is None:
        return shape.fixed_weights, shape.prunable_weights
    prunable = int(np.count_nonzero((shape.is_weight & ~frozen)[shape.prunable]))
    return shape.weights_above(*part) - prunable, prunable


def _check_statistics(num_samples: int, numbers: list[float], most_loss: float) -> None:
    if not 1 <= num_samples < 2**53:
        raise BadUpload("num_samples", "must be at least 1 and below 2^53", num_samples)
    for name, value in zip(_NUMBERS, numbers, strict=True):
        if math.isnan(value) and name in _ONLY_DIAGNOSED:
            continue
        if not math.isfinite(value) or (value < 0.0 and name != "loss"):
            raise BadUpload(name, "must be finite" + ("" if name == "loss" else " and not negative"), value)
        most = most_loss if name == "loss" else MOST_STATISTIC
        if abs(value) > most:
            raise BadUpload(name, f"must be at most {most:.6g}", f"{value:.6g}")


def _mask_kind(mask: Array | None, shared_mask: Array | None) -> int:
    if mask is None:
        return _NO_MASK
    if mask.all():
        return _FULL_MASK
    return _SHARED_MASK if shared_mask is not None and np.array_equal(mask, shared_mask) else _SENT_MASK


def _mask(
    head: _Header, packed: memoryview | None, codec: Codec, expected: Expected, shared_mask: Array | None
) -> Array | None:
    size, kind, frozen = codec.shape.prunable_weights, head.mask_kind, codec.frozen(expected.part)
    fixed, count = _weights_of(codec, expected.part)
    mask = None
    if kind == _SHARED_MASK:
        if shared_mask is None:
            raise BadUpload("mask", "must be sent along, because no mask is shared by all devices", "none")
        mask = shared_mask
    elif kind == _FULL_MASK:
        mask = np.ones(size, dtype=bool)
    elif packed is not None:
        bits = np.unpackbits(np.frombuffer(packed, np.uint8))
        if bits[size:].any():
            raise BadUpload("mask", f"must have {size:,} bits and then zeros", "others")
        mask = bits[:size].view(bool)
    if mask is not None:
        sent = mask if frozen is None else mask & ~frozen[codec.shape.prunable]
        count = int(np.count_nonzero(sent))
        if frozen is not None and np.count_nonzero(mask) > expected.keep:
            raise BadUpload("mask", f"must hold at most {expected.keep:,} weights", f"{np.count_nonzero(mask):,}")
    if count != head.num_sent - fixed:
        rule = f"must hold the {head.num_sent - fixed:,} prunable weights of the header"
        raise BadUpload("mask", rule, f"{count:,}")
    return mask


def _bits(codec: Codec, head: _Header) -> float:
    return float(codec.compression.message_bits(codec.coded(head.code), head.num_sent))


def _decoded(codec: Codec, head: _Header, message: Message, index: Array) -> Array:
    try:
        decoded = codec.compression.decode(codec.coded(head.code), message, codec.starts(index))
    except InvalidValue as error:
        raise BadUpload("update", f"must be one by {codec.compression.name} ({error})", "another") from None
    return decoded


def _report_to_bytes(name: str, array: Array) -> bytes:
    """Encodes a report: its name, how it travels, its shape, its entries."""
    label = name.encode()
    plain = array.dtype.newbyteorder("<").str
    if plain not in _REPORTED or array.ndim > _MOST_DIMENSIONS or len(label) > _MOST_NAME_BYTES:
        rule = f"must be an array of {', '.join(_REPORTED)} with a name of at most {_MOST_NAME_BYTES} bytes"
        raise InvalidValue(f"Upload.report {name!r}", rule, f"{array.dtype} of shape {array.shape}")
    if plain == "<i8" and np.all(array >> 1 == 0):
        tag, entries = _BITS, np.packbits(array.astype(bool)).tobytes()
    else:
        tag, entries = _REPORTED.index(plain), array.astype(plain).tobytes()
    head = _REPORT.pack(len(label), tag, array.ndim) + struct.pack(f"<{array.ndim}I", *array.shape)
    return head + label + entries


def _reports(sections: _Sections, count: int, codec: Codec, expected: Expected) -> dict[str, Array]:
    most = entries_left = _MOST_ENTRIES_PER_STATE * codec.shape.num_state
    found: dict[str, Array] = {}
    for _ in range(count):
        name_bytes, tag, num_dimensions = _REPORT.unpack(sections.take(_REPORT.size))
        if tag > _BITS or num_dimensions > _MOST_DIMENSIONS or name_bytes > _MOST_NAME_BYTES:
            raise BadUpload("report", "must be of a known kind", f"({name_bytes}, {tag}, {num_dimensions})")
        shape = struct.unpack(f"<{num_dimensions}I", sections.take(4 * num_dimensions))
        name = bytes(sections.take(name_bytes)).decode(errors="replace")
        dtype = np.dtype("<i8" if tag == _BITS else _REPORTED[tag])
        if expected.reports is not None and expected.reports.get(name) != (dtype.str, shape):
            raise BadUpload("report", "must be one that the method declares", f"{name!r} of {dtype.str} {shape}")
        entries_left -= (size := math.prod(shape))
        if entries_left < 0 or name in found:
            rule = f"must come once, with at most {most:,} entries in all"
            raise BadUpload("report", rule, f"{name!r} of shape {shape}")
        found[name] = _entries(sections, tag, dtype, size).reshape(shape)
    if sections.left:
        raise BadUpload("length", f"must end with its {count} reports", f"{sections.left:,} more bytes")
    return found


def _entries(sections: _Sections, tag: int, dtype: np.dtype, size: int) -> Array:
    if tag == _BITS:
        packed = np.frombuffer(sections.take(num_bytes(size)), np.uint8)
        return np.unpackbits(packed, count=size).astype(dtype)
    part = sections.take(size * dtype.itemsize)
    if dtype.kind == "b" and np.frombuffer(part, np.uint8).max(initial=0) > 1:
        raise BadUpload("report", "must have truth values of 0 or 1", "others")
    entries = np.frombuffer(part, dtype).copy()
    if dtype.kind == "f" and not (is_sound := np.abs(entries) <= MOST_STATISTIC).all():  # their sum is finite, too
        rule = f"must be finite and at most {MOST_STATISTIC:g}"
        raise BadUpload("report", rule, f"{np.count_nonzero(~is_sound):,} entries that are not")
    return entries
