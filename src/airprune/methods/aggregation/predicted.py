"""Predicts the updates that were not sent from those that were, as far as children agree.

A weight that n of N children sent is worth, to all N, their mean for the n and a prediction for the others. If
children's updates scatter around a common one with variance σ², and common updates have variance τ², the best linear
prediction of an update that was not sent is n τ² / (n τ² + σ²) of the mean of the n that were. So

    next = previous + d (masked mean − previous),   d = s + (1 − s) n / (n + q),   s = n / N,   q = σ² / τ².

Where children agree (q → 0) this is the masked mean of Eq. (12), where they contradict each other (q → ∞) it is `fill`.
q is measured in every round and at every edge on the weights that all of them send: those that are never pruned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.methods.aggregation.base import Aggregation, Array
from airprune.methods.aggregation.masked_sum import MaskedSum


@dataclass(eq=False)
class SumOfSquares(MaskedSum):
    """A masked sum that also knows how much the children scatter.

    Attributes:
      square: Σ c_n ‖w_n‖² over the weights that are never pruned.
    """

    square: float = 0.0

    def add(self, state: Array, mask: Array | None, weight: float = 1.0) -> None:
        super().add(state, mask, weight)
        fixed = _outside(state, self.prunable).astype(np.float64)
        self.square += weight * float(np.square(fixed).sum())

    def merge(self, other: MaskedSum) -> None:
        super().merge(other)
        assert isinstance(other, SumOfSquares)
        self.square += other.square

    def disagreement(self, previous: Array) -> float:
        """q = σ² / τ²; infinite if the children have nothing in common."""
        before = _outside(previous, self.prunable).astype(np.float64)
        total = _outside(self.total, self.prunable)
        count = self.all_count
        if count < 2:
            return np.inf
        mean = total / self.all_weight - before
        mean_sq = float(np.square(mean).sum())
        # Sums of products, not dot products: those depend on the threads of BLAS from 10,000 entries on.
        crossed, before_sq = float((before * total).sum()), float(np.square(before).sum())
        moved_sq = (self.square - 2.0 * crossed) / self.all_weight + before_sq
        scatter = max(moved_sq - mean_sq, 0.0) * count / (count - 1)
        common = mean_sq - scatter / count
        return scatter / common if common > 0.0 else np.inf


class Predicted(Aggregation):
    """The masked mean where children agree, fill where they do not."""

    name = "predicted"
    summary = "masked mean with unsent weights predicted from the others, as far as children agree"
    source = "own; best linear prediction of unsent weights"
    Sum = SumOfSquares

    def finish(self, total: MaskedSum, previous: Array) -> Array:
        """Returns the damped mean; where all children sent a weight, exactly the masked mean."""
        assert isinstance(total, SumOfSquares)
        mean = total.mean(previous)
        if total.all_weight <= 0.0:
            return mean
        kept_by = total.sent_by
        share = total.weight / total.all_weight
        damping = share + (1.0 - share) * kept_by / (kept_by + total.disagreement(previous))
        before = previous.astype(np.float64)
        return np.where(kept_by < total.all_count, before + damping * (mean - before), mean).astype(previous.dtype)


def _outside(values: Array, prunable: slice) -> Array:
    return np.concatenate([values[: prunable.start], values[prunable.stop :]])
