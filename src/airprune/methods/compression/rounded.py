"""b bits per weight, rounded to the nearest of 2^b evenly spaced levels; made for error feedback.

    sent = scale · level,   level ∈ {±1/2, ±3/2, … ± (2^b − 1)/2}

Values beyond the last level are cut to it. Where that is, is chosen per tensor among max |x| / √2^i as what loses
least, all large and a sample of the small entries considered; then scale = ⟨x, level⟩ / ⟨level, level⟩, of all scales
the one with the least squared error. So

    ‖x − sent‖² = ‖x‖² − ⟨x, level⟩² / ‖level‖² < ‖x‖²:

the error never exceeds the update, and error feedback cannot grow without bound.
That is what `quantised` lacks at few bits: it is unbiased, but its error may exceed the update. b = 1 is
`sign`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from airprune.methods.compression.base import SCALE_BITS, Array, Generator, Message, Remembering, Wire, check_length
from airprune.methods.compression.packing import num_bytes, pack, unpack, word

# Of each tensor so many small entries, evenly spread, stand for all small ones; small is below max |x| / 8.
SAMPLE, SMALL = 2_048, 1 / 8
# The last level is at max |x| / √2^i for one of these i.
CUTS = range(13)


class Rounded(Remembering):
    """The nearest of evenly spaced levels."""

    name = "rounded"
    summary = "deterministic quantisation to a few bits with least-squares scale and error feedback"
    source = "own; uniform quantiser with the least-squares scale, error feedback after Karimireddy et al."

    bits: Annotated[int, Field(ge=1, le=16)] = Field(default=4, description="bits of each weight")
    memory: bool = Field(default=True, description="error feedback: add the compression error to the next update")

    def line(self, wire: Wire) -> tuple[float, float]:
        return float(self.bits), float(SCALE_BITS * wire.num_tensors)

    def message_bits(self, wire: Wire, num_weights: int) -> float:
        return float(self.bits * num_weights + SCALE_BITS * wire.num_tensors)

    def encode(self, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
        """The sign of 0 is a fair coin, as in `sign`. A tensor with a NaN or Inf has the scale NaN."""
        scales = np.zeros(wire.num_tensors)
        codes = np.zeros(values.size, dtype=word(self.bits))
        undecided = values == 0.0
        nudged = values
        if undecided.any():  # less than half a level, so it decides signs alone
            nudged = values.copy()
            nudged[undecided] = np.where(rng.random(int(np.count_nonzero(undecided))) < 0.5, -0.0, 0.0)
        for tensor in range(wire.num_tensors):
            part = slice(starts[tensor], starts[tensor + 1])
            scales[tensor], codes[part] = _rounded(nudged[part], self.bits)
        payload = scales.astype("<f8").tobytes() + pack(codes, self.bits)
        return Message(payload, self.message_bits(wire, values.size), values.size)

    def decode(self, wire: Wire, message: Message, starts: Array) -> Array:
        width, scale_bytes = self.bits, SCALE_BITS // 8 * wire.num_tensors
        check_length(f"rounded to {width} bits", message, scale_bytes + num_bytes(message.num_weights * width))
        scales = np.frombuffer(message.payload[:scale_bytes], "<f8")
        codes = unpack(message.payload[scale_bytes:], width, message.num_weights)
        return _levels(codes, width) * np.repeat(scales, np.diff(starts))


def _rounded(values: Array, width: int) -> tuple[float, Array]:
    """(scale, codes) of one tensor."""
    with np.errstate(over="ignore", invalid="ignore"):
        peak = float(np.abs(values).max(initial=0.0))
        if not np.isfinite(peak):
            return np.nan, np.zeros(values.size)
        unit = values / peak if peak > 0.0 else values  # squares neither vanish nor overflow
    large = np.abs(unit) >= SMALL
    every = max(1, values.size // SAMPLE)
    groups = ((unit[large], 1), (unit[~large][::every], every))
    codes = _codes(unit, _best_step(groups, width), width)
    levels = _levels(codes, width)
    scale = peak * float((unit * levels).sum() / np.square(levels).sum()) if values.size else 0.0
    return scale, codes


def _best_step(groups: Sequence[tuple[Array, int]], width: int) -> float:
    """Returns the step with the least loss: cuts ever more until that loses more."""
    best, least = 0.0, np.inf
    for cut in CUTS:
        step = 2.0 ** (1 - width - cut / 2)
        loss = _loss(groups, step, width)
        if loss >= least:
            break
        best, least = step, loss
    return best


def _loss(groups: Sequence[tuple[Array, int]], step: float, width: int) -> float:
    """−⟨x, level⟩² / ‖level‖²: the squared error but for ‖x‖²; each group of values counts so many times."""
    inner = length_sq = 0.0
    for values, times in groups:
        levels = _levels(_codes(values, step, width), width)
        inner += times * float((values * levels).sum())
        length_sq += times * float(np.square(levels).sum())
    return -(inner**2) / length_sq if length_sq else 0.0


def _codes(values: Array, step: float, width: int) -> Array:
    """0 for the lowest level; −0.0 goes to −1/2, 0.0 to 1/2."""
    half = 2 ** (width - 1)
    magnitude = np.minimum(np.floor(np.abs(values) / step), half - 1)
    return np.where(np.signbit(values), half - 1 - magnitude, half + magnitude).astype(word(width))


def _levels(codes: Array, width: int) -> Array:
    return codes - (2.0**width - 1.0) / 2.0
