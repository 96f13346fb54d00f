"""Codes of ascending size, of which a device sends with the largest that its time and its share of the band carry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Codes:
    """What a compression can do with more or fewer bits.

    Attributes:
      numbers: the codes, each taking no fewer bits than the one before: numbers of entries, bits per weight, …
      bits: of a message about so many weights: of (code, weights).
    """

    numbers: Sequence[int]
    bits: Callable[[int, int], float]

    def largest(self, weights: Array, budget_bits: Array) -> Array:
        """The largest code of a message about `weights` within each budget; −1 where none is.  [num_devices]"""
        pairs = zip(weights.tolist(), budget_bits.tolist(), strict=True)
        return np.array([self._largest(count, budget) for count, budget in pairs], dtype=np.int64)

    def bits_per_weight(self, code: Array, weights: Array) -> Array:
        """Of each device's message; of the smallest code where there is none.  [num_devices]"""
        code = np.where(code < 0, self.numbers[0], code)
        pairs = zip(code.tolist(), weights.tolist(), strict=True)
        return np.array([self.bits(number, count) / max(count, 1) for number, count in pairs])

    def _largest(self, weights: int, budget_bits: float) -> int:
        low, high = 0, len(self.numbers)
        while low < high:
            middle = (low + high) // 2
            fits = self.bits(self.numbers[middle], weights) <= budget_bits
            low, high = (middle + 1, high) if fits else (low, middle)
        return self.numbers[low - 1] if low else -1
