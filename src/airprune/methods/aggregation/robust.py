"""The base of robust aggregations: what a minority of children sends moves the result by a bounded amount only.

A child whose update is not finite does not count. At weights that fewer than three children sent there is no majority;
there the mean of the updates is taken after long ones are shortened to C times the median length of the round:

    Δ ← mean of min(1, C median ‖Δ_m‖ / ‖Δ_n‖) Δ_n

Children count equally, since the number of samples is what a child says of itself.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.methods.aggregation.base import Aggregation, Array
from airprune.methods.aggregation.kept_models import KeptModels, Updates, typical_length
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.settings.section import Positive

# Children that must have sent a weight, before one of them can be outvoted.
MAJORITY = 3


class Robust(Aggregation):
    """Compares the children's updates with each other."""

    Sum: ClassVar[type[MaskedSum]] = KeptModels
    compares: ClassVar[bool] = True

    clip: Positive | None = Field(
        default=1.0,
        description="longer updates are shortened to this many times the median length of the round, at weights that "
        "fewer than three children sent (norm-clip: at all weights); none: as they are",
    )

    @abstractmethod
    def combine(self, values: Array, sent: Array, judged: Array) -> Array:
        """Returns the combined update of a block of weights.  [num_weights]

        Args:
          values: Δ of each child, zero where it was not sent.  [num_children, num_weights]
          sent: which weights each child sent.  [num_children, num_weights] bool
          judged: by `judge`.  [num_children]
        """

    def judge(self, updates: Updates) -> Array:
        """Returns one number for each child, from its whole update.  [num_children]"""
        return np.ones(len(updates))

    @property
    def is_plain(self) -> bool:
        """True if the options leave the mean as it is."""
        return False

    def finish(self, total: MaskedSum, previous: Array) -> Array:
        assert isinstance(total, KeptModels)
        updates = total.updates(previous)
        if not len(updates):
            return previous
        if self.is_plain and len(updates) == total.all_count:
            return total.mean(previous)
        judged, factors = self.judge(updates), shortening(updates.lengths, self.clip)
        combined = updates.previous.copy()
        for block, values, sent in updates.blocks():
            enough = sent.sum(axis=0) >= MAJORITY
            move = self.combine(values, sent, judged) if enough.any() else np.zeros(len(enough))
            if not enough.all():
                move = np.where(enough, move, mean_of(factors[:, None] * values, sent))
            combined[block] += move
        return combined.astype(previous.dtype)


def shortening(lengths: Array, clip: float | None) -> Array:
    """Returns min(1, C median / ‖Δ_n‖) of each child.  [num_children]"""
    if clip is None:
        return np.ones(len(lengths))
    longest = clip * typical_length(lengths)
    return np.divide(longest, lengths, out=np.ones(len(lengths)), where=lengths > longest)


def mean_of(values: Array, sent: Array, weights: Array | None = None) -> Array:
    """Returns the mean of each weight over the children that sent it, 0 if none did.  [num_weights]

    Args:
      values: zero where not sent.  [num_children, num_weights]
      weights: of the children; None: equal.  [num_children]
    """
    if weights is None:
        return values.sum(axis=0) / np.maximum(sent.sum(axis=0), 1)
    total = (weights[:, None] * sent).sum(axis=0)
    return np.divide((weights[:, None] * values).sum(axis=0), total, out=np.zeros(len(total)), where=total > 0.0)


def trimmed_mean(values: Array, sent: Array, share: float) -> Array:
    """Returns the mean of each weight without this share of its values at either end, rounded up; 0.5: the median.

    At least one value is left, or two of an even number.  [num_weights]
    """
    ordered = np.sort(np.where(sent, values, np.inf).T, axis=1)
    count = sent.sum(axis=0)[:, None]
    cut = np.minimum(np.ceil(share * count - 1e-9), (count - 1) // 2)
    rank = np.arange(len(values))
    inside = (rank >= cut) & (rank < count - cut)
    return np.where(inside, ordered, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
