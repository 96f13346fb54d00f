"""One bit per weight: its sign, times one scale per tensor or a step size that everybody knows (sign-SGD)."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from airprune.methods.compression.base import (
    SCALE_BITS,
    Compression,
    Generator,
    Message,
    Wire,
    check_length,
    error_memory,
)
from airprune.methods.compression.packing import num_bytes
from airprune.settings.section import Section

Array = np.ndarray


class SignOptions(Section):
    """Options of `sign`."""

    owner: ClassVar[str] = "Scenario.compression.sign"

    scale: Literal["mean"] | Annotated[float, Field(gt=0)] = Field(
        default="mean",
        description="what a sign stands for: mean |entry| of its tensor, or a step size, which is not sent",
    )
    memory: bool = Field(default=True, description="add what was left out to the next update")


def line(options: SignOptions, wire: Wire) -> tuple[float, float]:
    return 1.0, float(_scale_bits(options, wire))


def bits(options: SignOptions, wire: Wire, num_weights: int) -> float:
    return float(num_weights + _scale_bits(options, wire))


def encode(options: SignOptions, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
    """sign(0) is a fair coin: dead ReLUs give exact zeros, which a fixed sign would let drift without end.

    A tensor with a NaN or Inf has the scale NaN and arrives as NaN throughout. With a step size there is no room for
    that: the sign of NaN is a coin, too, and only the sender's memory shows it.
    """
    positive = values > 0
    undecided = ~(positive | (values < 0))
    positive[undecided] = rng.random(int(np.count_nonzero(undecided))) < 0.5
    scales = b""
    if options.scale == "mean":
        means = [_mean(values[starts[tensor] : starts[tensor + 1]]) for tensor in range(wire.num_tensors)]
        scales = np.array(means, dtype="<f8").tobytes()
    return Message(scales + np.packbits(positive).tobytes(), bits(options, wire, values.size), values.size)


def decode(options: SignOptions, wire: Wire, message: Message, starts: Array) -> Array:
    scale_bytes = _scale_bits(options, wire) // 8
    check_length("sign", message, scale_bytes + num_bytes(message.num_weights))
    packed = np.frombuffer(message.payload[scale_bytes:], np.uint8)
    signs = 2.0 * np.unpackbits(packed, count=message.num_weights) - 1.0
    if options.scale != "mean":
        return signs * options.scale
    return signs * np.repeat(np.frombuffer(message.payload[:scale_bytes], "<f8"), np.diff(starts))


def exact(options: SignOptions, wire: Wire) -> bool:
    return False


def _scale_bits(options: SignOptions, wire: Wire) -> int:
    return SCALE_BITS * wire.num_tensors if options.scale == "mean" else 0


def _mean(values: Array) -> float:
    """mean |x|: of all scales the one with the least squared error; 0 if nothing is sent, NaN if it is not finite."""
    with np.errstate(over="ignore"):
        mean = float(np.abs(values).mean()) if values.size else 0.0
    return mean if math.isfinite(mean) else math.nan


COMPRESSION = Compression(
    name="sign",
    summary="one bit per weight, one scale per tensor or a fixed step size",
    Options=SignOptions,
    slots=error_memory("sign"),
    source="sign-SGD (Bernstein et al. 2018); with the mean and a memory EF-signSGD (Karimireddy et al. 2019)",
    line=line,
    bits=bits,
    encode=encode,
    decode=decode,
    exact=exact,
)
