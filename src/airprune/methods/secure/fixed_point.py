"""Updates as whole numbers modulo 2^k, whose sum is exact whatever the order.

With n devices and words of k bits, ⌈log2 n⌉ bits are headroom and b = k − ⌈log2 n⌉ hold a value:

    x = round(Δ / s),   s = R / (2^(b−1) − 1),   |x| ≤ 2^(b−1) − 1,   so |Σ x| < 2^(k−1),

and the sum modulo 2^k, read as a signed number, is Σ x.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airprune.methods.compression.packing import word

Array = np.ndarray

# Fewer would round updates to little more than signs; more than a float64 holds are no use.
LEAST_VALUE_BITS, MOST_VALUE_BITS = 4, 53


def headroom_bits(num_devices: int) -> int:
    """Returns ⌈log2 n⌉."""
    return max(num_devices - 1, 0).bit_length()


@dataclass(frozen=True)
class FixedPoint:
    """The whole numbers of one sum.

    Attributes:
      word_bits: k.
      num_devices: n, summands at the most.
      limit: R; entries beyond ±R are cut.
    """

    word_bits: int
    num_devices: int
    limit: float

    @property
    def value_bits(self) -> int:
        """Returns b."""
        return min(self.word_bits - headroom_bits(self.num_devices), MOST_VALUE_BITS)

    @property
    def largest(self) -> int:
        """Returns the largest |x|."""
        return int(2 ** (self.value_bits - 1) - 1)

    @property
    def step(self) -> float:
        """Returns s."""
        return self.limit / self.largest

    @cached_property
    def dtype(self) -> np.dtype:
        """The machine word that holds a word."""
        return word(self.word_bits)

    def whole(self, update: Array) -> Array:
        """Returns x of an update; zero if any entry is not finite, as after diverged training.  [n] int64"""
        if not np.isfinite(update).all():
            return np.zeros(len(update), dtype=np.int64)
        return np.rint(np.clip(update / self.step, -self.largest, self.largest)).astype(np.int64)

    def words(self, whole: Array) -> Array:
        """Returns whole numbers modulo 2^k.  [n] of `dtype`"""
        return self.reduced(whole.astype(np.uint64).astype(self.dtype))

    def reduced(self, words: Array) -> Array:
        """Returns machine words modulo 2^k.  [n] of `dtype`"""
        if self.word_bits == 8 * self.dtype.itemsize:
            return words
        return words & self.dtype.type(2**self.word_bits - 1)

    def signed(self, words: Array) -> Array:
        """Returns the numbers in [−2^(k−1), 2^(k−1)) that the words stand for.  [n] int64"""
        shift = np.uint64(64 - self.word_bits)
        return (words.astype(np.uint64) << shift).view(np.int64) >> np.int64(shift)
