"""What travels from a node to its parent above the devices: its update, through a code of the links' own.

    v_parent ← combination of v_parent + Q(v_child − v_parent)

With a weighted mean this is v_parent += Σ share · Q(v_child − v_parent) (Hier-Local-QSGD), at every level of a tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airprune.components.component import ModelShape
from airprune.methods.compression.base import Compression, Wire, transmit
from airprune.randomness import rng_for

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Backhaul:
    """The code of the links above the edges; without memory, whatever its options say.

    Attributes:
      extra_bits: that travel beside the model, e.g. control variates.
    """

    compression: Compression
    wire: Wire
    shape: ModelShape
    seed: int
    extra_bits: float = 0.0

    @cached_property
    def bits(self) -> float:
        """Of a whole model on one link."""
        return float(self.compression.message_bits(self.wire, self.shape.num_weights)) + self.extra_bits

    def received(self, child: Array, parent: Array, *address: int) -> Array:
        """A child's model as its parent decodes it.  [num_state]

        Args:
          parent: the model that both know.  [num_state]
          address: of the randomness: round, level, node.
        """
        if self.compression.exact(self.wire):
            return child
        index = self._weight_index
        base = parent[index].astype(np.float64)
        rng = rng_for(self.seed, "backhaul", *address)
        update = child[index].astype(np.float64) - base
        decoded, _, _ = transmit(self.compression, self.wire, update, self._starts, None, rng)
        arrived = child.copy()
        arrived[index] = (base + decoded).astype(child.dtype)
        return arrived

    @cached_property
    def _weight_index(self) -> Array:
        return np.flatnonzero(self.shape.is_weight)

    @cached_property
    def _starts(self) -> Array:
        stops = [tensor.stop for tensor in self.shape.tensors if tensor.counted]
        return np.concatenate([[0], np.searchsorted(self._weight_index, stops)])
