"""The devices of an edge whose updates arrive as one sum, and what an aggregation may know of them beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.components.component import Array
from airprune.randomness import rng_for


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """Devices that are summed together, those that drop out later included.

    Attributes:
      devices: their numbers in the network, ascending.
      threshold: the least devices of which the edge takes the sum.
    """

    devices: tuple[int, ...]
    threshold: int = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class CohortView:
    """The planned devices of an edge in one round.

    Attributes:
      devices: all of them, ascending, those that drop out later included.
      word_bits: of a value in an upload.
      address: seed of the run, global round, edge round and edge.
      snr: g_n p / σ² of each over the whole bandwidth; None where no radio is simulated.
    """

    devices: tuple[int, ...]
    word_bits: float
    address: tuple[int, ...] = (0,)
    snr: Array | None = None

    def rng(self, stream: str) -> np.random.Generator:
        """Returns a random stream of this edge and round."""
        return rng_at(self.address, stream)


def rng_at(address: tuple[int, ...], stream: str) -> np.random.Generator:
    """Returns the stream of that name at an address as `CohortView` has it."""
    seed, *key = address
    return rng_for(seed, stream, *key)
