"""s levels and a sign per weight, one scale per tensor, by stochastic rounding, unbiased (QSGD).

    Q(x) = scale · sign(x) · (⌊y⌋ + Bernoulli(y − ⌊y⌋)) / s,   y = s |x| / scale,   Q(0) = 0

scale = ‖x‖₂ as published, or max |x|, which is never larger and so never noisier. It also decides whether error
feedback is safe. By max |x| a weight's error is at most 1/s of the largest wanted entry, so from s = 2 on the memory
never exceeds max |Δ| / (s − 1). By ‖x‖₂ the error of a tensor of n weights can be √n / s times as long as what was
wanted: a memory of it grows without bound unless s is large against √n.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from airprune.errors import InvalidValue
from airprune.methods.compression.base import SCALE_BITS, Array, Generator, Message, Remembering, Wire, check_length
from airprune.methods.compression.packing import num_bytes, pack, unpack, word

SQUARES_FIT = 1e-140, 1e140  # magnitudes whose squares neither vanish nor overflow in float64


class Quantised(Remembering):
    """A few levels and a sign per weight."""

    name = "quantised"
    summary = "unbiased stochastic quantisation: levels and a sign per weight, one scale per tensor"
    source = "QSGD (Alistarh et al. 2017) with norm = l2; norm = max and error feedback are additions"
    either: ClassVar[tuple[tuple[str, str], ...]] = (("bits", "levels"),)

    bits: Annotated[int, Field(ge=2, le=16)] | None = Field(
        default=4,
        description="bits per weight with its sign: s = 2^(bits − 1) − 1 levels; the most, if a scheme chooses levels",
    )
    levels: Annotated[int, Field(ge=1, le=2**40)] | None = Field(
        default=None, description="s: number of levels, instead of bits"
    )
    norm: Literal["max", "l2"] = Field(
        default="max", description="scale of a tensor: its largest entry, or its L2 norm"
    )
    stochastic: bool = Field(default=True, description="stochastic rounding, unbiased; false: to the nearest level")
    memory: bool = Field(default=True, description="error feedback; default false if norm is l2")

    @model_validator(mode="before")
    @classmethod
    def _defaults_that_fit(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        defaults: dict[str, Any] = {}
        if data.get("levels") not in (None, "none"):
            defaults["bits"] = None
        if data.get("norm") == "l2":
            defaults["memory"] = False
        return {**defaults, **data}

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.bits is None) == (self.levels is None):
            got = "neither" if self.bits is None else f"{self.bits} and {self.levels}"
            raise InvalidValue(f"{self.owner}.bits", "or levels must be given, and not both", got, "Example: bits = 4")
        return self

    @property
    def num_levels(self) -> int:
        """s."""
        return self.levels if self.levels is not None else 2 ** ((self.bits or 0) - 1) - 1

    @property
    def code_bits(self) -> int:
        """1 + ⌈log2(s + 1)⌉, in whole numbers so that no logarithm is a little off."""
        return 1 + self.num_levels.bit_length()

    def codes(self, wire: Wire) -> range:
        """A level is the bits per weight: of all s that take so many, the largest is the best."""
        return range(2, self.code_bits + 1)

    def width_and_levels(self, wire: Wire) -> tuple[int, int]:
        """(bits per weight, s), as the planner has chosen or as the options say."""
        if wire.code is None:
            return self.code_bits, self.num_levels
        return wire.code, min(2 ** (wire.code - 1) - 1, self.num_levels)

    def line(self, wire: Wire) -> tuple[float, float]:
        return float(self.width_and_levels(wire)[0]), float(SCALE_BITS * wire.num_tensors)

    def message_bits(self, wire: Wire, num_weights: int) -> float:
        """n (1 + ⌈log2(s + 1)⌉) + 64 per tensor, also for a tensor of which nothing is sent."""
        return float(num_weights * self.width_and_levels(wire)[0] + SCALE_BITS * wire.num_tensors)

    def encode(self, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
        """A tensor with a NaN or Inf has the scale NaN and arrives as NaN throughout."""
        width, num_levels = self.width_and_levels(wire)
        levels = np.abs(values)
        scales = np.zeros(wire.num_tensors)
        for tensor in range(wire.num_tensors):
            part = levels[starts[tensor] : starts[tensor + 1]]
            scale = scales[tensor] = _scale(part, self.norm)
            if scale > 0:
                part /= scale
                part *= num_levels
            else:
                part[:] = 0.0
        if self.stochastic:
            lower = np.floor(levels)
            levels -= lower
            lower += rng.random(values.size) < levels
            levels = lower
        else:
            np.rint(levels, out=levels)
        np.minimum(levels, num_levels, out=levels)  # a length can be rounded below its only entry
        codes = levels.astype(word(width))
        codes |= np.signbit(values).astype(codes.dtype) << codes.dtype.type(width - 1)
        payload = scales.astype("<f8").tobytes() + pack(codes, width)
        return Message(payload, self.message_bits(wire, values.size), values.size)

    def decode(self, wire: Wire, message: Message, starts: Array) -> Array:
        (width, num_levels), count = self.width_and_levels(wire), message.num_weights
        scale_bytes = SCALE_BITS // 8 * wire.num_tensors
        check_length(f"quantised to {width} bits", message, scale_bytes + num_bytes(count * width))
        scales = np.frombuffer(message.payload[:scale_bytes], "<f8")
        codes = unpack(message.payload[scale_bytes:], width, count)
        sign_bit = codes.dtype.type(1 << (width - 1))
        levels = codes & ~sign_bit
        if levels.max(initial=0) > num_levels:
            raise InvalidValue("Message.payload", f"must hold levels up to {num_levels}", int(levels.max()))
        decoded = levels / num_levels
        np.negative(decoded, out=decoded, where=(codes >= sign_bit) & (levels > 0))  # zero has no sign
        for tensor, scale in enumerate(scales):
            decoded[starts[tensor] : starts[tensor + 1]] *= scale
        return decoded


def _scale(magnitude: Array, norm: str) -> float:
    """Returns the scale of one tensor; 0 if nothing of it is sent, NaN if it is not finite."""
    peak = float(magnitude.max(initial=0.0))
    if not math.isfinite(peak):
        return math.nan
    if norm == "max" or peak == 0:
        return peak
    if SQUARES_FIT[0] < peak < SQUARES_FIT[1]:
        return math.sqrt(float(np.square(magnitude).sum()))  # not BLAS, whose order depends on its threads
    length = peak * math.sqrt(float(np.square(magnitude / peak).sum()))
    return length if math.isfinite(length) else math.nan
