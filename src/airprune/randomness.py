"""Addresses random streams by name, so that order of calls, workers and resuming change nothing.

    rng_for(seed, "fading", round_index)              the same numbers at any time and in any process
    NumberedStreams(seed, "device", round_index)[n]   one stream for each of very many devices, quickly
    WholeNumbers(seed, "layers", round_index)[n]      one number of very many, without the others

Streams in use: placement, cpu (network); line-of-sight, shadowing, fading, csi (channel); initial-weights (models);
subset, hold-out, partition-size, partition-classes, partition-share, partition-draw, glyphs-train, glyphs-test (data);
device, augmentation, loop, privacy, layers, work, events, attackers, attack, records, backhaul (rounds); flower,
flower-reply (flower).
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np

from airprune.checks import whole_number
from airprune.errors import InvalidValue

_WORD = 2**32


def rng_for(seed: int, stream: str, *key: int) -> np.random.Generator:
    """Returns the generator at address (seed, stream, key), independent of every other address.

    Built as SeedSequence(seed, spawn_key=(words of the stream's name, *key)). The name enters through
    BLAKE2 because Python's hash() differs from process to process. Each key is written as two 32-bit
    words: SeedSequence itself would spell the key 2^32 and the keys (0, 1) with the same words.

    Args:
      seed: of the whole run, 0 <= seed < 2^128 (SeedSequence's pool; longer seeds would run into the key).
      stream: what the numbers are for.
      key: round, edge, device… indices, each 0 <= key < 2^64.
    """
    return np.random.default_rng(_seed_sequence(seed, stream, key))


class NumberedStreams:
    """The streams of one name, distinguished by a number, each at a quarter of the cost of `rng_for`.

    All share the Philox key of the address; stream n starts at draw n·2^128 of it, so they never meet.
    """

    def __init__(self, seed: int, stream: str, *key: int) -> None:
        self._key = _seed_sequence(seed, stream, key).generate_state(2, np.uint64)
        self._moving: np.random.Generator | None = None
        self._start: Any = None  # of the moving generator before its first draw

    def __getitem__(self, number: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self._key, counter=[0, 0, number, 0]))

    def at(self, number: int) -> np.random.Generator:
        """Returns the same stream from one generator that moves from number to number, at a fifth of the cost.

        For callers that finish one stream before they use the next.
        """
        if self._moving is None:
            self._moving = self[0]
            self._start = self._moving.bit_generator.state
        self._start["state"]["counter"][2] = number
        self._moving.bit_generator.state = self._start
        return self._moving


class WholeNumbers:
    """The entries of `rng_for(seed, stream, *key).integers(2**63, size=…)`: `numbers[n]` is sampled without the others.

    2^63 divides what a generator draws from, so every entry takes one draw and the generator can jump to it.
    """

    def __init__(self, seed: int, stream: str, *key: int) -> None:
        self._generator = rng_for(seed, stream, *key)
        self._start: Any = self._generator.bit_generator.state

    def __getitem__(self, number: int) -> int:
        source: Any = self._generator.bit_generator
        source.state = self._start
        source.advance(number)
        return int(self._generator.integers(2**63))


def _seed_sequence(seed: int, stream: str, key: tuple[int, ...]) -> np.random.SeedSequence:
    seed = whole_number("rng_for.seed", seed, at_most=2**128 - 1, way_out="Example: seed = 0")
    if not isinstance(stream, str) or not stream:
        raise InvalidValue("rng_for.stream", "must be a non-empty name", repr(stream), 'Example: "fading"')
    spawn_key = list(_words(stream))
    for item in key:
        number = whole_number("rng_for.key", item, at_most=2**64 - 1, way_out="Count rounds and devices from 0")
        spawn_key += [number % _WORD, number // _WORD]
    return np.random.SeedSequence(seed, spawn_key=spawn_key)


@functools.cache
def _words(stream: str) -> tuple[int, ...]:
    digest = hashlib.blake2b(stream.encode(), digest_size=16).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
