"""How a child enters its parent's sum, at edges and above them."""

from __future__ import annotations

import numpy as np

from airprune.methods.aggregation import Aggregation
from airprune.methods.aggregation.masked_sum import MaskedSum

Array = np.ndarray


def add_child(
    aggregation: Aggregation,
    total: MaskedSum,
    state: Array,
    mask: Array | None,
    weight: float,
    previous: Array,
    member: tuple[int, int] | None = None,
) -> None:
    """Adds one child to a sum, as the aggregation reads it.

    Args:
      state: its model, zero where `mask` is false.  [num_state]
      previous: the parent's model that it started from.  [num_state]
      member: of a device: its number, and that of the device that uploads for it.
    """
    if aggregation.overrides(Aggregation.read):
        state = aggregation.read(state, previous)
        if mask is not None:
            state[total.prunable] = np.where(mask, state[total.prunable], 0.0)
    if member is None:
        total.add(state, mask, weight)
    else:
        device, master = member
        total.add_member(state, mask, weight, is_master=device == master, master=master)
