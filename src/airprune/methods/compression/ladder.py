"""A set of compression levels from a seventh of a bit to 32 bits per weight; the planner chooses one per device.

Below two bits the largest entries travel as signs (`ternary`), above it all entries in a few bits (`rounded`), at the
top as 32-bit values (`cast`). One error feedback serves all levels, so a device may change its level from round to
round. Without a planner that chooses, all devices have the level of `bits`.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import Field

from airprune.methods.compression.base import Array, Code, Compression, Generator, Message, Remembering, Wire
from airprune.methods.compression.cast import Cast
from airprune.methods.compression.rounded import Rounded
from airprune.methods.compression.ternary import Ternary


class Rung(NamedTuple):
    """A level, and the share of its energy that a Laplacian update loses by it."""

    compression: Compression
    error: float


RUNGS = (
    *(Rung(Ternary(one_in=one_in), error) for one_in, error in ((64, 0.79), (32, 0.69), (16, 0.55), (8, 0.41))),
    *(
        Rung(Rounded(bits=bits), error)
        for bits, error in ((2, 0.20), (3, 0.073), (4, 0.026), (5, 0.009), (6, 0.003), (8, 3e-4), (12, 1e-6))
    ),
    Rung(Cast(format="float32"), 0.0),
)


class Ladder(Remembering):
    """A compression level for each device."""

    name = "ladder"
    summary = "set of compression levels, 0.14 to 32 bits per weight, chosen per device; error feedback"
    source = "own"

    bits: Annotated[float, Field(gt=0, le=32)] = Field(
        default=4.0, description="bits per weight at most, where the scheme chooses no level"
    )
    memory: bool = Field(default=True, description="error feedback: add the compression error to the next update")

    def ladder(self, wire: Wire) -> tuple[Code, ...]:
        return tuple(Code(rung.compression.line(wire)[0], rung.error) for rung in RUNGS)

    def codes(self, wire: Wire) -> range:
        return range(len(RUNGS))

    def line(self, wire: Wire) -> tuple[float, float]:
        """Returns fixed bits that suffice for every level."""
        fixed = max(rung.compression.line(wire)[1] for rung in RUNGS)
        return self._code(wire).line(wire)[0], fixed

    def message_bits(self, wire: Wire, num_weights: int) -> float:
        return self._code(wire).message_bits(wire, num_weights)

    def encode(self, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
        return self._code(wire).encode(wire, values, starts, rng)

    def decode(self, wire: Wire, message: Message, starts: Array) -> Array:
        return self._code(wire).decode(wire, message, starts)

    def _code(self, wire: Wire) -> Compression:
        if wire.code is not None:
            return RUNGS[wire.code].compression
        affordable = [rung.compression for rung in RUNGS if rung.compression.line(wire)[0] <= self.bits]
        return affordable[-1] if affordable else RUNGS[0].compression
