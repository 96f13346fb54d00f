"""Every value in a floating-point format: the paper's upload of q̂ bits per weight, or fewer bits by rounding."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from airprune.methods.compression.base import Array, Generator, Message, Remembering, Wire, check_length

STORED = {"exact": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}


class Cast(Remembering):
    """Every value in one floating-point format."""

    name = "cast"
    summary = "uncompressed values, or rounded to a shorter floating-point format"
    source = "the paper's upload; shorter formats as published"
    fully_open: ClassVar = {"format": "exact"}

    format: Literal["exact", "float32", "bfloat16", "float16"] = Field(
        default="exact", description="exact: unchanged, at the scenario's bits per weight; else 32, 16 or 16 bits"
    )
    memory: bool = Field(default=False, description="error feedback: add the rounding error to the next update")

    def line(self, wire: Wire) -> tuple[float, float]:
        return self._value_bits(wire), 0.0

    def message_bits(self, wire: Wire, num_weights: int) -> float:
        return num_weights * self._value_bits(wire)

    def encode(self, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
        """Rounds to nearest, ties to even; beyond the format's range to Inf, which arrives as Inf.

        "exact" stores float64 whatever q̂ is: q̂ is then what the scenario charges for a value, and equals what the
        payload takes at q̂ = 64.
        """
        with np.errstate(over="ignore"):
            stored = bfloat16_bits(values) if self.format == "bfloat16" else values
            payload = stored.astype(STORED[self.format]).tobytes()
        return Message(payload, self.message_bits(wire, values.size), values.size)

    def decode(self, wire: Wire, message: Message, starts: Array) -> Array:
        stored = np.dtype(STORED[self.format])
        check_length(f"cast to {self.format}", message, message.num_weights * stored.itemsize)
        values = np.frombuffer(message.payload, stored)
        if self.format == "bfloat16":  # the upper half of a float32
            values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return values.astype(np.float64)

    def exact(self, wire: Wire) -> bool:
        return self.format == "exact"

    def _value_bits(self, wire: Wire) -> float:
        return wire.value_bits if self.format == "exact" else 8.0 * np.dtype(STORED[self.format]).itemsize


def bfloat16_bits(values: Array) -> Array:
    """The nearest bfloat16 of each float64, ties to even, as its 16 bits.  uint16

    Rounding to float32 first may make a tie of what was none. So the float32 is taken towards zero and, if anything was
    cut off, made odd: it then lies on the same side of every tie of the shorter format as the value itself.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = values.astype(np.float32)
        inexact = nearest != values
        too_large = np.abs(nearest) > np.abs(values)
    pattern = nearest.view(np.uint32) - too_large
    pattern |= inexact
    half = np.uint32(0x7FFF) + ((pattern >> np.uint32(16)) & np.uint32(1))
    rounded = ((pattern + half) >> np.uint32(16)).astype(np.uint16)
    rounded[np.isnan(values)] = 0x7FC0  # the carry above could turn a NaN into Inf or -0
    return rounded
