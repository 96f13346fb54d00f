"""One entry in m: the largest of the update, as signs times one scale per tensor (sparse ternary compression).

Which entries these are travels as an Elias–Fano list: of every position the low l = ⌊log2 m⌋ bits, and the high parts
as one row of bits. A message about n weights, k = max(1, ⌊n / m⌋) of them sent, so takes

    k (l + 2) + ⌊(n − 1) / 2^l⌋ bits and a scale per tensor,

whatever the values: 0.44 bits per weight at m = 16, where no code could do with less than p + H(p) = 0.40 on average.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from airprune.errors import InvalidValue
from airprune.methods.compression.base import SCALE_BITS, Array, Generator, Message, Remembering, Wire, check_length
from airprune.methods.compression.packing import num_bytes
from airprune.methods.compression.top_k import largest


class Ternary(Remembering):
    """The largest entries as signs."""

    name = "ternary"
    summary = "sparse ternary: signs of the largest entries, one scale per tensor, error feedback"
    source = "after sparse ternary compression (Sattler et al. 2019), with positions as Elias–Fano lists"

    one_in: Annotated[int, Field(ge=2, le=2**20)] = Field(default=16, description="m: one weight in m is sent")
    memory: bool = Field(default=True, description="error feedback: add the compression error to the next update")

    @property
    def low_bits(self) -> int:
        """l."""
        return self.one_in.bit_length() - 1

    def num_sent(self, num_weights: int) -> int:
        """k."""
        return min(num_weights, max(1, num_weights // self.one_in))

    def line(self, wire: Wire) -> tuple[float, float]:
        """k ≤ n / m + 1, because at least one entry is sent."""
        entry = self.low_bits + 2.0
        per_weight = entry / self.one_in + 2.0**-self.low_bits
        return per_weight, entry + SCALE_BITS * wire.num_tensors

    def message_bits(self, wire: Wire, num_weights: int) -> float:
        return float(self._list_bits(num_weights) + self.num_sent(num_weights) + SCALE_BITS * wire.num_tensors)

    def encode(self, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
        """A tensor with a NaN or Inf among what is sent has the scale NaN; NaN counts as larger than anything."""
        count = self.num_sent(values.size)
        place = largest(values, count) if count else np.zeros(0, dtype=np.int64)
        chosen = values[place]
        with np.errstate(invalid="ignore", over="ignore"):
            sums = np.add.reduceat(np.append(np.abs(chosen), 0.0), _first(place, starts))
        counts = _counts(place, starts)
        scales = np.divide(sums, counts, out=np.zeros(wire.num_tensors), where=counts > 0)
        scales[~np.isfinite(scales)] = np.nan
        low = self.low_bits
        high = np.zeros(count + self._last_high(values.size), dtype=np.uint8)
        high[(place >> low) + np.arange(count)] = 1
        row = np.concatenate([high, np.signbit(chosen).astype(np.uint8)])
        payload = scales.astype("<f8").tobytes() + _joined_bits(place & ((1 << low) - 1), low, row)
        return Message(payload, self.message_bits(wire, values.size), values.size)

    def decode(self, wire: Wire, message: Message, starts: Array) -> Array:
        n, low = message.num_weights, self.low_bits
        count, scale_bytes = self.num_sent(n), SCALE_BITS // 8 * wire.num_tensors
        list_bits = self._list_bits(n)
        check_length(f"ternary with one in {self.one_in}", message, scale_bytes + num_bytes(list_bits + count))
        scales = np.frombuffer(message.payload[:scale_bytes], "<f8")
        row = np.unpackbits(np.frombuffer(message.payload[scale_bytes:], np.uint8), count=list_bits + count)
        lows = row[: count * low].reshape(count, low) @ (1 << np.arange(low)[::-1]) if low else np.zeros(count, int)
        found = np.flatnonzero(row[count * low : list_bits])
        if found.size != count:
            raise InvalidValue("Message.payload", f"must list {count} positions", found.size)
        place = ((found - np.arange(count)) << low) + lows
        if count and (place[-1] >= n or np.any(np.diff(place) <= 0)):
            raise InvalidValue("Message.payload", f"must list ascending positions below {n}", int(place[-1]))
        values = np.zeros(n)
        values[place] = np.where(row[list_bits:], -1.0, 1.0) * np.repeat(scales, _counts(place, starts))
        return values

    def _list_bits(self, num_weights: int) -> int:
        """Number of bits of the positions."""
        return self.num_sent(num_weights) * (self.low_bits + 1) + self._last_high(num_weights)

    def _last_high(self, num_weights: int) -> int:
        return max(num_weights - 1, 0) >> self.low_bits


def _first(place: Array, starts: Array) -> Array:
    """Returns the place among the chosen entries at which each tensor begins."""
    return np.searchsorted(place, starts[:-1])


def _counts(place: Array, starts: Array) -> Array:
    """Returns the number of chosen entries of each tensor."""
    return np.diff(np.searchsorted(place, starts))


def _joined_bits(lows: Array, width: int, row: Array) -> bytes:
    columns = [(lows >> shift) & 1 for shift in range(width - 1, -1, -1)]
    head = np.stack(columns, axis=1).astype(np.uint8).ravel() if columns else np.zeros(0, dtype=np.uint8)
    return np.packbits(np.concatenate([head, row])).tobytes()
