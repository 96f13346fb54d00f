"""Every value in a floating-point format: the paper's upload of q̂ bits per weight, or fewer bits by rounding."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from airprune.methods.compression.base import Compression, Generator, Message, Wire, check_length, error_memory
from airprune.settings.section import Section

Array = np.ndarray

STORED = {"exact": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}


class CastOptions(Section):
    """Options of `cast`."""

    owner: ClassVar[str] = "Scenario.compression.cast"

    format: Literal["exact", "float32", "bfloat16", "float16"] = Field(
        default="exact", description="exact: unchanged, at the scenario's bits per weight; else 32, 16 or 16 bits"
    )
    memory: bool = Field(default=False, description="add what rounding left out to the next update")


def line(options: CastOptions, wire: Wire) -> tuple[float, float]:
    return _value_bits(options, wire), 0.0


def bits(options: CastOptions, wire: Wire, num_weights: int) -> float:
    return num_weights * _value_bits(options, wire)


def encode(options: CastOptions, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
    """Rounds to nearest, ties to even; beyond the format's range to Inf, which arrives as Inf.

    "exact" stores float64 whatever q̂ is: q̂ is then what the scenario charges for a value, and equals what the payload
    takes at q̂ = 64.
    """
    with np.errstate(over="ignore"):
        stored = bfloat16_bits(values) if options.format == "bfloat16" else values
        payload = stored.astype(STORED[options.format]).tobytes()
    return Message(payload, bits(options, wire, values.size), values.size)


def decode(options: CastOptions, wire: Wire, message: Message, starts: Array) -> Array:
    stored = np.dtype(STORED[options.format])
    check_length(f"cast to {options.format}", message, message.num_weights * stored.itemsize)
    values = np.frombuffer(message.payload, stored)
    if options.format == "bfloat16":  # the upper half of a float32
        values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float64)


def exact(options: CastOptions, wire: Wire) -> bool:
    return options.format == "exact"


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


def _value_bits(options: CastOptions, wire: Wire) -> float:
    return wire.value_bits if options.format == "exact" else 8.0 * np.dtype(STORED[options.format]).itemsize


COMPRESSION = Compression(
    name="cast",
    summary="every value unchanged, or rounded to a shorter floating-point format",
    Options=CastOptions,
    slots=error_memory("cast"),
    source="the paper's upload; shorter formats as published",
    line=line,
    bits=bits,
    encode=encode,
    decode=decode,
    exact=exact,
    fully_open={"format": "exact"},
)
