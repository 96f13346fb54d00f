"""Rolls a parent back to its last good model where an aggregate explodes, and names the children that caused it.

With X = `aggregation.rollback` and ‖·‖ the root mean square over the weights that were sent, an aggregate is discarded
if it is not finite, or if ‖aggregate − previous‖ > X median ‖Δ_n‖. A child is suspected if its update is not finite, or
if ‖Δ_n‖ > X median ‖Δ_m‖ among at least three children. So an honest child is never suspected as long as more than half
of the children are honest, and none of these has an update X times as long as another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from airprune.methods.aggregation.kept_models import typical_length
from airprune.methods.aggregation.robust import MAJORITY

Array = np.ndarray


class Verdict(NamedTuple):
    """The verdict on one aggregate.

    Attributes:
      suspected: places of the children with updates that are not finite, or far too long; ascending.
      rolled_back: whether the parent keeps the model that it had.
    """

    suspected: tuple[int, ...] = ()
    rolled_back: bool = False


def update_length(model: Array, previous: Array, sent: Array | None = None) -> float:
    """Returns ‖model − previous‖ over what was sent; None: all.  [num_state]"""
    if sent is not None:
        model, previous = model[sent], previous[sent]
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.square(model.astype(np.float64) - previous).sum())
    return float(np.sqrt(total / max(len(model), 1)))


def verdict_on(combined: float, lengths: Sequence[float] | Array, most: float) -> Verdict:
    """Returns the verdict on an aggregate.

    Args:
      combined: length of the aggregate's update.
      lengths: of the children's updates.  [num_children]
      most: X.
    """
    length = np.asarray(lengths, dtype=np.float64)
    is_finite = np.isfinite(length)
    longest = most * typical_length(length[is_finite])
    is_long = np.zeros(len(length), dtype=bool)
    if np.count_nonzero(is_finite) >= MAJORITY and longest > 0.0:
        is_long = length > longest
    explodes = not np.isfinite(combined) or (longest > 0.0 and combined > longest)
    return Verdict(tuple(np.flatnonzero(~is_finite | is_long).tolist()), explodes)
