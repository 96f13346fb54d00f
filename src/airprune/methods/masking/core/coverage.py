"""Number of devices that kept each weight: Γ* of Theorem 1, and the weights that no device trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from airprune.checks import whole_number
from airprune.errors import InvalidValue


@dataclass(frozen=True)
class Coverage:
    """Histogram of the number of devices that kept a weight.

    Attributes:
      histogram: entry c is the number of (weight, edge round) pairs with |N_j| = c devices.
    """

    histogram: tuple[int, ...]

    @property
    def min_count(self) -> int:
        """Γ* = min |N_j| over the weights that some device kept; 0 if there is none.

        Differs from Theorem 1, which takes the minimum over all weights: one uncovered weight would make the
        bound infinite, though Eq. (12) just leaves that weight where it was.
        """
        return next((count for count, number in enumerate(self.histogram) if count and number), 0)

    @property
    def num_uncovered(self) -> int:
        """Weights kept by no device."""
        return self.histogram[0]


def coverage_of(counts: ArrayLike, num_devices: int) -> Coverage:
    """Coverage of one edge round.

    Args:
      counts: |N_j|, how many of the edge's devices kept each weight.  [num_weights]
      num_devices: of the edge, N_k.
    """
    num_devices = whole_number("coverage_of.num_devices", num_devices)
    counts = np.asarray(counts)
    whole = np.issubdtype(counts.dtype, np.integer) or bool(np.all(counts == np.floor(counts)))
    if not whole or np.any(counts < 0) or np.any(counts > num_devices):
        got = f"{counts.dtype} between {counts.min()} and {counts.max()}"
        raise InvalidValue("coverage_of.counts", f"must be whole numbers in [0, {num_devices}]", got)
    return Coverage(histogram=tuple(np.bincount(counts.astype(np.intp), minlength=num_devices + 1).tolist()))
