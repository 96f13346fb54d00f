"""A ladder of codes from a seventh of a bit to 32 bits per weight; the planner chooses a rung for each device.

Below two bits the largest entries travel as signs (`ternary`), above it all entries in a few bits (`rounded`), at the
top as 32-bit values (`cast`). One memory serves all rungs, so a device may change its code from round to round and
nothing that it once left out is forgotten. Without a planner that chooses, everybody stands on the rung of `bits`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from airprune.methods.compression import cast, rounded, ternary
from airprune.methods.compression.base import Code, Compression, Generator, Message, Wire, error_memory
from airprune.settings.section import Section

Array = np.ndarray


class Rung(NamedTuple):
    """A code, and the share of its energy that a Laplacian update loses by it."""

    component: Compression
    options: Section
    error: float


RUNGS = (
    *(
        Rung(ternary.COMPRESSION, ternary.TernaryOptions(one_in=one_in), error)
        for one_in, error in ((64, 0.79), (32, 0.69), (16, 0.55), (8, 0.41))
    ),
    *(
        Rung(rounded.COMPRESSION, rounded.RoundedOptions(bits=bits), error)
        for bits, error in ((2, 0.20), (3, 0.073), (4, 0.026), (5, 0.009), (6, 0.003), (8, 3e-4), (12, 1e-6))
    ),
    Rung(cast.COMPRESSION, cast.CastOptions(format="float32"), 0.0),
)


class LadderOptions(Section):
    """Options of `ladder`."""

    owner: ClassVar[str] = "Scenario.compression.ladder"

    bits: Annotated[float, Field(gt=0, le=32)] = Field(
        default=4.0, description="per weight, where the scheme chooses no code: the best one with so many at the most"
    )
    memory: bool = Field(default=True, description="add what was left out to the next update")


def ladder(options: LadderOptions, wire: Wire) -> tuple[Code, ...]:
    return tuple(Code(rung.component.line(rung.options, wire)[0], rung.error) for rung in RUNGS)


def codes(options: LadderOptions, wire: Wire) -> range:
    return range(len(RUNGS))


def line(options: LadderOptions, wire: Wire) -> tuple[float, float]:
    """Fixed bits that suffice for every rung."""
    rung = _rung(options, wire)
    fixed = max(rung.component.line(rung.options, wire)[1] for rung in RUNGS)
    return rung.component.line(rung.options, wire)[0], fixed


def bits(options: LadderOptions, wire: Wire, num_weights: int) -> float:
    rung = _rung(options, wire)
    return rung.component.bits(rung.options, wire, num_weights)


def encode(options: LadderOptions, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
    rung = _rung(options, wire)
    return rung.component.encode(rung.options, wire, values, starts, rng)


def decode(options: LadderOptions, wire: Wire, message: Message, starts: Array) -> Array:
    rung = _rung(options, wire)
    return rung.component.decode(rung.options, wire, message, starts)


def exact(options: LadderOptions, wire: Wire) -> bool:
    return False


def _rung(options: LadderOptions, wire: Wire) -> Rung:
    if wire.code is not None:
        return RUNGS[wire.code]
    affordable = [rung for rung in RUNGS if rung.component.line(rung.options, wire)[0] <= options.bits]
    return affordable[-1] if affordable else RUNGS[0]


COMPRESSION = Compression(
    name="ladder",
    summary="a code for each device, from 0.14 to 32 bits per weight, chosen by the planner; the rest is remembered",
    Options=LadderOptions,
    slots=error_memory("ladder"),
    source="own",
    line=line,
    bits=bits,
    encode=encode,
    decode=decode,
    exact=exact,
    ladder=ladder,
    codes=codes,
)
