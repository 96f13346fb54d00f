"""The largest entries of the update with their places; with error feedback, the rest is sent later (Mem-SGD).

Where places would cost more than the entries that they save, all entries are sent without: never more bits than a whole
update has.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from airprune.errors import InvalidValue
from airprune.methods.compression.base import Array, Generator, Message, Remembering, Wire, check_length
from airprune.methods.compression.packing import num_bytes, pack, unpack


class TopK(Remembering):
    """The largest entries and their places."""

    name = "top-k"
    summary = "top-k sparsification of the update with error feedback"
    source = "Mem-SGD (Stich et al. 2018), error feedback on the update"
    fully_open: ClassVar = {"share": 1.0}
    either: ClassVar[tuple[tuple[str, str], ...]] = (("share", "count"),)

    share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=0.1,
        description="k over the weights of the update, rounded down, at least one; the most if schemes choose levels",
    )
    count: Annotated[int, Field(ge=1, le=2**40)] | None = Field(default=None, description="k, instead of share")
    memory: bool = Field(default=True, description="error feedback: add the compression error to the next update")

    @model_validator(mode="before")
    @classmethod
    def _count_replaces_share(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("count") not in (None, "none"):
            return {"share": None, **data}
        return data

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.share is None) == (self.count is None):
            got = "neither" if self.share is None else f"{self.share:g} and {self.count}"
            raise InvalidValue(
                f"{self.owner}.share", "or count must be given, and not both", got, "Example: share = 0.1"
            )
        return self

    def num_sent(self, num_weights: int) -> int:
        """k. The share counts as it is written: 0.29 of 100 weights are 29, although 0.29 · 100 < 29 in float64."""
        if self.share is None:
            return min(self.count or 0, num_weights)
        return min(num_weights, max(1, math.floor(Fraction(repr(self.share)) * num_weights)))

    def codes(self, wire: Wire) -> range:
        """A level is k itself."""
        return range(1, self.num_sent(wire.num_weights) + 1)

    def count_sent(self, wire: Wire, num_weights: int) -> int:
        """k as the planner has chosen it, or as the options say."""
        return self.num_sent(num_weights) if wire.code is None else min(wire.code, num_weights)

    def line(self, wire: Wire) -> tuple[float, float]:
        """With a share, k ≤ share · n + (1 − share), because at least one entry is sent."""
        if self.share is None:
            return 0.0, self.message_bits(wire, wire.num_weights)
        if self.share * entry_bits(wire) >= wire.value_bits:
            return wire.value_bits, 0.0
        return self.share * entry_bits(wire), (1.0 - self.share) * entry_bits(wire)

    def message_bits(self, wire: Wire, num_weights: int) -> float:
        whole_bits = num_weights * wire.value_bits
        if self._sends_all(wire, num_weights):
            return whole_bits
        return min(self.count_sent(wire, num_weights) * entry_bits(wire), whole_bits)

    def encode(self, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
        """The k largest |values|, of equal ones those with the lowest index; NaN counts as larger than anything."""
        if self._sends_all(wire, values.size):
            with np.errstate(over="ignore"):
                payload = values.astype(value_format(wire)).tobytes()
            return Message(payload, self.message_bits(wire, values.size), values.size)
        index = largest(values, self.count_sent(wire, values.size))
        with np.errstate(over="ignore"):
            stored = values[index].astype(value_format(wire))
        payload = stored.tobytes() + pack(index, _index_bits(wire))
        return Message(payload, self.message_bits(wire, values.size), values.size)

    def decode(self, wire: Wire, message: Message, starts: Array) -> Array:
        count, width = self.count_sent(wire, message.num_weights), _index_bits(wire)
        stored = np.dtype(value_format(wire))
        if self._sends_all(wire, message.num_weights):
            check_length("top-k that sends all", message, message.num_weights * stored.itemsize)
            return np.frombuffer(message.payload, stored).astype(np.float64)
        value_bytes = count * stored.itemsize
        check_length(f"top-{count}", message, value_bytes + num_bytes(count * width))
        index = unpack(message.payload[value_bytes:], width, count)
        if index.size and index.max() >= message.num_weights:
            raise InvalidValue("Message.payload", f"must hold indices below {message.num_weights}", int(index.max()))
        values = np.zeros(message.num_weights)
        values[index] = np.frombuffer(message.payload[:value_bytes], stored)
        return values

    def _sends_all(self, wire: Wire, num_weights: int) -> bool:
        """Returns whether values and places of k entries would take as many bytes as all values."""
        stored_bits = 8 * np.dtype(value_format(wire)).itemsize
        return self.count_sent(wire, num_weights) * (stored_bits + _index_bits(wire)) >= num_weights * stored_bits

    def exact(self, wire: Wire) -> bool:
        return self.count_sent(wire, wire.num_weights) == wire.num_weights and value_format(wire) == "<f8"


def entry_bits(wire: Wire) -> float:
    """A value and its index: q̂ + ⌈log2 W⌉."""
    return wire.value_bits + _index_bits(wire)


def largest(values: Array, count: int) -> Array:
    """Indices of the `count` ≥ 1 entries of largest magnitude, in ascending order."""
    if count >= values.size:
        return np.arange(values.size)
    magnitude = np.abs(values)
    magnitude[np.isnan(magnitude)] = np.inf
    threshold = np.partition(magnitude, values.size - count)[values.size - count]
    chosen = magnitude > threshold
    ties = np.flatnonzero(magnitude == threshold)
    chosen[ties[: count - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)


def _index_bits(wire: Wire) -> int:
    return max(wire.num_weights - 1, 0).bit_length()


def value_format(wire: Wire) -> str:
    """float64 if q̂ > 32, else float32: the next real format if q̂ is in between. The charge is q̂."""
    return "<f8" if wire.value_bits > 32 else "<f4"
