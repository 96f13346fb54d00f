"""One bit per weight: its sign, times one scale per tensor or a step size that is known to all (sign-SGD)."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from airprune.methods.compression.base import SCALE_BITS, Array, Generator, Message, Remembering, Wire, check_length
from airprune.methods.compression.packing import num_bytes


class Sign(Remembering):
    """One bit per weight."""

    name = "sign"
    summary = "one-bit sign compression, one scale per tensor or a fixed step size"
    source = "sign-SGD (Bernstein et al. 2018); with the mean and error feedback EF-signSGD (Karimireddy et al. 2019)"

    scale: Literal["mean"] | Annotated[float, Field(gt=0)] = Field(
        default="mean",
        description="magnitude of a sign: mean |entry| of its tensor, or a fixed step size, which is not sent",
    )
    memory: bool = Field(default=True, description="error feedback: add the compression error to the next update")

    def line(self, wire: Wire) -> tuple[float, float]:
        return 1.0, float(self._scale_bits(wire))

    def message_bits(self, wire: Wire, num_weights: int) -> float:
        return float(num_weights + self._scale_bits(wire))

    def encode(self, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
        """sign(0) is a fair coin: dead ReLUs give exact zeros, which a fixed sign would let drift without end.

        A tensor with a NaN or Inf has the scale NaN and arrives as NaN throughout. With a step size there is no room
        for that: the sign of NaN is a coin, too, and only the sender's memory shows it.
        """
        positive = values > 0
        undecided = ~(positive | (values < 0))
        positive[undecided] = rng.random(int(np.count_nonzero(undecided))) < 0.5
        scales = b""
        if self.scale == "mean":
            means = [_mean(values[starts[tensor] : starts[tensor + 1]]) for tensor in range(wire.num_tensors)]
            scales = np.array(means, dtype="<f8").tobytes()
        return Message(scales + np.packbits(positive).tobytes(), self.message_bits(wire, values.size), values.size)

    def decode(self, wire: Wire, message: Message, starts: Array) -> Array:
        scale_bytes = self._scale_bits(wire) // 8
        check_length("sign", message, scale_bytes + num_bytes(message.num_weights))
        packed = np.frombuffer(message.payload[scale_bytes:], np.uint8)
        signs = 2.0 * np.unpackbits(packed, count=message.num_weights) - 1.0
        if self.scale != "mean":
            return signs * self.scale
        return signs * np.repeat(np.frombuffer(message.payload[:scale_bytes], "<f8"), np.diff(starts))

    def _scale_bits(self, wire: Wire) -> int:
        return SCALE_BITS * wire.num_tensors if self.scale == "mean" else 0


def _mean(values: Array) -> float:
    """mean |x|: of all scales the one with the least squared error; 0 if nothing is sent, NaN if it is not finite."""
    with np.errstate(over="ignore"):
        mean = float(np.abs(values).mean()) if values.size else 0.0
    return mean if math.isfinite(mean) else math.nan
