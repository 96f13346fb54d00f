"""The base class of compressors, their messages, and error feedback, which is the same for all.

A device sends Δ = trained − received, of the counted weights it holds. A compression says how many bits that takes
(to the planner as a line, to the clock exactly), turns Δ into bytes and bytes back into Δ. With
error feedback the compression error is added to the next Δ.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.components.component import Array, Component, ModelShape, Owner, Slot, all_weights
from airprune.errors import InvalidValue

Generator = np.random.Generator

SCALE_BITS = 64
"""One scale travels as a float64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Wire:
    """The settings of a message that encoder and decoder share.

    Attributes:
      value_bits: q̂, what one exact value is charged; 64 in the paper.
      num_weights: W, all counted weights of the model; an index takes ⌈log2 W⌉ bits, however few weights are sent.
      num_tensors: tensors of the model that carry counted weights: one scale each.
      code: the level that the planner has chosen among `codes`; None: the options decide.
    """

    value_bits: float
    num_weights: int
    num_tensors: int
    code: int | None = None

    @classmethod
    def of(cls, shape: ModelShape, *, value_bits: float) -> Wire:
        num_tensors = sum(tensor.counted for tensor in shape.tensors)
        return cls(value_bits=value_bits, num_weights=shape.num_weights, num_tensors=num_tensors)


@dataclass(frozen=True)
class Code:
    """One compression level of a set.

    Attributes:
      bits_per_weight: never below what a message takes, beside the fixed bits of the compression's `line`.
      error: the share of an update's energy that it loses, as measured on a Laplacian one.
    """

    bits_per_weight: float
    error: float


@dataclass(frozen=True)
class Message:
    """One encoded update.

    Attributes:
      payload: what travels; `decode` needs nothing else from the sender.
      bits: what is charged for it: the bits in use, before padding to whole bytes.
      num_weights: n, entries of the update.
    """

    payload: bytes
    bits: float
    num_weights: int


class Compression(Component):
    """A compressor of updates.

    `values` are float64 [n]; `starts` [num_tensors + 1] are the offsets of the tensors in them, from 0 to n; a tensor
    of which nothing is sent is empty.

    One that keeps a slot has error feedback; see `Remembering`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.owner = f"Scenario.compression.{cls.name}"  # unless another section chooses it

    @abstractmethod
    def line(self, wire: Wire) -> tuple[float, float]:
        """Returns (bits per sent weight, fixed bits), never below `message_bits`: what the planner uses."""

    @abstractmethod
    def message_bits(self, wire: Wire, num_weights: int) -> float:
        """Returns the exact bits of a message about so many weights; the same as its `Message.bits`."""

    @abstractmethod
    def encode(self, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
        """Turns an update into a message."""

    @abstractmethod
    def decode(self, wire: Wire, message: Message, starts: Array) -> Array:
        """Turns a message back into an update.  float64 [n]"""

    def exact(self, wire: Wire) -> bool:
        """Returns whether decoding gives back every value bit for bit."""
        return False

    def ladder(self, wire: Wire) -> tuple[Code, ...] | None:
        """Returns the levels among which a planner may choose for each device, cheapest first; None: one for all."""
        return None

    def codes(self, wire: Wire) -> Sequence[int] | None:
        """Returns what `Wire.code` may be, in ascending order of `message_bits`; the options say which is the largest.

        A scheme that goes by size alone gives each device the largest that fits; None: one for all.
        """
        return None


class Remembering(Compression):
    """A compressor whose option `memory` turns error feedback on.

    Members declare the option themselves, after their others, with the default that suits them.
    """

    if TYPE_CHECKING:
        memory: bool

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Persists the compression error of each device."""
        return (Slot(name=f"{self.name}.error", owner=Owner.DEVICE, shape=all_weights),) if self.memory else ()


def transmit(
    compression: Compression,
    wire: Wire,
    update: Array,
    starts: Array,
    memory: Array | None,
    rng: Generator,
) -> tuple[Array, Message, Array | None]:
    """Encodes and decodes one update, with error feedback if there is a memory.

        wanted = Δ + memory;   sent = decode(encode(wanted));   memory' = wanted − sent

    The new memory has the dtype of the old one, which for slots is float32. So sent + memory' = wanted holds
      top-k       exactly in what is sent; in the rest, memory' is `wanted` rounded to the memory's dtype, thus exactly
                  in float64, and in float32 whenever float32 can hold `wanted`
      the others  to half a unit in the last place of memory' in its dtype: `wanted − sent` is rounded
    A NaN or Inf arrives as one and stays in the memory, so that a diverged device shows.

    Args:
      update: Δ of the sent weights.  [n]
      starts: offsets of the tensors in it.  [num_tensors + 1]
      memory: the compression error of earlier rounds in the same weights; None: without error feedback.  [n]

    Returns:
      What the receiver decodes (float64), the message, the new memory.
    """
    if update.size > wire.num_weights:  # an index would not fit into its bits
        raise InvalidValue("Wire.num_weights", f"must be ≥ the {update.size:,} weights of the update", wire.num_weights)
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = np.array(update, dtype=np.float64) if memory is None else np.add(update, memory, dtype=np.float64)
        message = compression.encode(wire, wanted, starts, rng)
        sent = compression.decode(wire, message, starts)
        left = None if memory is None else (wanted - sent).astype(memory.dtype)
    return sent, message, left


def check_length(component: str, message: Message, num_bytes: int) -> None:
    """Refuses a payload that was cut or belongs to another compressor."""
    if len(message.payload) != num_bytes:
        rule = f"must have {num_bytes:,} bytes for {message.num_weights:,} weights by {component}"
        raise InvalidValue("Message.payload", rule, f"{len(message.payload):,}")
