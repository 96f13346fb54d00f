"""k entries of the update at random. Their places follow from a seed that is sent along, so they cost no bits.

Without error feedback the entries are scaled by n / k, which makes them unbiased; with it they are sent unscaled,
because the error of the scaled ones would grow without bound (Mem-SGD).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.methods.compression.base import Array, Generator, Message, Wire, check_length
from airprune.methods.compression.top_k import TopK, value_format
from airprune.randomness import rng_for

SEED_BITS = 64


class RandomK(TopK):
    """Entries at random places, which follow from a seed."""

    name = "random-k"
    summary = "random-k sparsification of the update, unbiased; positions follow from a seed"
    source = "random sparsification; with error feedback Mem-SGD's random-k (Stich et al. 2018)"
    fully_open: ClassVar = {"share": 1.0}

    memory: bool = Field(default=False, description="error feedback; entries are then sent unscaled")

    def line(self, wire: Wire) -> tuple[float, float]:
        """With a share, k ≤ share · n + (1 − share), because at least one entry is sent."""
        if self.share is None:
            return 0.0, self.message_bits(wire, wire.num_weights)
        return self.share * wire.value_bits, (1.0 - self.share) * wire.value_bits + SEED_BITS

    def message_bits(self, wire: Wire, num_weights: int) -> float:
        return self.count_sent(wire, num_weights) * wire.value_bits + SEED_BITS

    def encode(self, wire: Wire, values: Array, starts: Array, rng: Generator) -> Message:
        """Values travel as in `top-k`."""
        seed = int(rng.random(1)[0] * 2**53)
        index = sampled_places(seed, values.size, self.count_sent(wire, values.size))
        with np.errstate(over="ignore"):
            stored = (values[index] * self._factor(values.size, index.size)).astype(value_format(wire))
        payload = np.uint64(seed).astype("<u8").tobytes() + stored.tobytes()
        return Message(payload, self.message_bits(wire, values.size), values.size)

    def decode(self, wire: Wire, message: Message, starts: Array) -> Array:
        count, stored = self.count_sent(wire, message.num_weights), np.dtype(value_format(wire))
        check_length(f"random-{count}", message, SEED_BITS // 8 + count * stored.itemsize)
        seed = int(np.frombuffer(message.payload[: SEED_BITS // 8], "<u8")[0])
        values = np.zeros(message.num_weights)
        values[sampled_places(seed, message.num_weights, count)] = np.frombuffer(
            message.payload[SEED_BITS // 8 :], stored
        )
        return values

    def _factor(self, num_weights: int, count: int) -> float:
        return 1.0 if self.memory or count == 0 else num_weights / count


def sampled_places(seed: int, num_weights: int, count: int) -> Array:
    """Places of `count` different weights, each as likely as the others, in ascending order."""
    if count >= num_weights:
        return np.arange(num_weights)
    keys = rng_for(seed, "random-k").random(num_weights)
    return np.sort(np.argpartition(keys, count)[:count])
