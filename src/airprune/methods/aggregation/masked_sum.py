"""Averages over the devices that kept each weight, Eq. (12), and over edges, Eq. (13), as streaming sums.

A sum and a weight per model weight are all that is kept, whatever the number of devices. Sums are taken in float64 and
in a fixed order, so the result does not depend on where or in how many pieces the work was done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from airprune.checks import array_of, quantity
from airprune.components.component import Array
from airprune.errors import InvalidValue
from airprune.methods.aggregation.cohort import Cohort
from airprune.models.kernels import native


@dataclass(eq=False)
class MaskedSum:
    """Σ c_n w_n ⊙ m_n and Σ c_n m_n over the devices seen so far.

    Devices that pruned nothing, and all weights outside the prunable slice, need no sum per weight: one number serves.

    Attributes:
      prunable: where masks apply.
      total: Σ c_n w_n, pruned entries being zero.  [num_state] float64
      all_weight, all_count: Σ c_n and number of all devices.
      dense_weight, dense_count: the same of those that pruned nothing.
      masked_weight: Σ c_n m_n of the others; None as long as all c_n are 1, where it is `masked_count`.
        [num_prunable] float64
      masked_count: Σ m_n of the others.  [num_prunable] int64
      frozen_weight, frozen_count: Σ c_n and number of the devices that left an entry as they received it, and did not
        send it; None if none did.  [num_state]
    """

    prunable: slice
    total: Array
    masked_weight: Array | None
    masked_count: Array
    all_weight: float = 0.0
    all_count: int = 0
    dense_weight: float = 0.0
    dense_count: int = 0
    frozen_weight: Array | None = None
    frozen_count: Array | None = None

    @classmethod
    def zeros(cls, num_state: int, prunable: slice) -> MaskedSum:
        size = prunable.stop - prunable.start
        return cls(prunable, np.zeros(num_state), None, np.zeros(size, dtype=np.int64))

    def begin(self, cohort: Cohort) -> None:
        """Given the devices that are summed together, before the first of them is added; no difference here."""

    def copy(self) -> MaskedSum:
        names = ("total", "masked_weight", "masked_count", "frozen_weight", "frozen_count")
        arrays = {name: getattr(self, name) for name in names}
        return replace(self, **{name: array.copy() for name, array in arrays.items() if array is not None})

    def add(self, state: Array, mask: Array | None, weight: float = 1.0) -> None:
        """Adds one device. `state` is zero wherever `mask` (over the prunable slice) is false; None: all are kept."""
        if state.dtype == np.float32 and not native.trouble:
            native.add_state(self.total, state, weight)
        else:
            self.total += state if weight == 1.0 else weight * state.astype(np.float64)
        self.count(weight, is_dense=mask is None)
        if mask is not None:
            if weight != 1.0 and self.masked_weight is None:
                self.masked_weight = self.masked_count.astype(np.float64)
            if self.masked_weight is not None:
                self.masked_weight += weight * mask
            if native.trouble:
                self.masked_count += mask
            else:
                native.add_counts(self.masked_count, mask)

    def add_member(
        self, state: Array, mask: Array | None, weight: float, *, is_master: bool, master: int, work: float = 1.0
    ) -> None:
        """Adds one device, given the number of the one that uploads for it; groups and steps make no difference here.

        Args:
          work: ‖a_n‖₁, the sum of the factors of its gradients in its update: without momentum, its local steps.
        """
        self.add(state, mask, weight)

    def leave_out(self, frozen: Array, weight: float) -> None:
        """Takes entries out of the count of a device that is in the sum already, with zeros there.  [num_state] bool"""
        if self.frozen_weight is None or self.frozen_count is None:
            self.frozen_weight, self.frozen_count = np.zeros(len(frozen)), np.zeros(len(frozen), dtype=np.int64)
        self.frozen_weight += weight * frozen
        self.frozen_count += frozen

    def count(self, weight: float, *, is_dense: bool) -> None:
        """Counts a device that is in the arrays already."""
        self.all_weight += weight
        self.all_count += 1
        if is_dense:
            self.dense_weight += weight
            self.dense_count += 1

    def merge(self, other: MaskedSum) -> None:
        """Adds the devices of `other` after those of this sum."""
        self.total += other.total
        if self.masked_weight is not None or other.masked_weight is not None:
            self.masked_weight = self._masked_weight() + other._masked_weight()
        if other.all_count > other.dense_count:
            self.masked_count += other.masked_count
        self.all_weight += other.all_weight
        self.all_count += other.all_count
        self.dense_weight += other.dense_weight
        self.dense_count += other.dense_count
        if other.frozen_weight is not None and other.frozen_count is not None:
            if self.frozen_weight is None or self.frozen_count is None:
                self.frozen_weight, self.frozen_count = np.zeros_like(self.total), np.zeros_like(other.frozen_count)
            self.frozen_weight += other.frozen_weight
            self.frozen_count += other.frozen_count

    def _masked_weight(self) -> Array:
        return self.masked_count.astype(np.float64) if self.masked_weight is None else self.masked_weight

    @property
    def kept_by(self) -> Array:
        """Number of devices that kept each prunable weight: Γ of the paper.  [num_prunable]"""
        kept_by = self.masked_count + self.dense_count
        return kept_by if self.frozen_count is None else kept_by - self.frozen_count[self.prunable]

    @property
    def sent_by(self) -> Array:
        """Number of devices that sent each entry.  [num_state]"""
        sent_by = np.full(len(self.total), self.all_count)
        if self.frozen_count is not None:
            sent_by -= self.frozen_count
        sent_by[self.prunable] = self.kept_by
        return sent_by

    @property
    def weight(self) -> Array:
        """Σ c_n m_n of every entry.  [num_state]"""
        weight = np.full(len(self.total), self.all_weight)
        weight[self.prunable] = self._masked_weight() + self.dense_weight
        if self.frozen_weight is not None:  # exactly zero where no device is left, whatever the rounding
            weight = np.where(self.sent_by > 0, weight - self.frozen_weight, 0.0)
        return weight

    def mean(self, previous: Array) -> Array:
        """Eq. (12). Differs from it where no device kept a weight: the edge keeps its previous value, not 0/0."""
        is_dense = self.dense_count == self.all_count and self.frozen_weight is None
        if is_dense and self.all_weight > 0.0:  # one number serves
            return (self.total / self.all_weight).astype(previous.dtype)
        weight = self.weight
        mean = np.divide(self.total, weight, out=previous.astype(np.float64), where=weight > 0.0)
        return mean.astype(previous.dtype)


def aggregate(values: Array, masks: Array, previous: Array, *, weights: Array | None = None) -> Array:
    """Eq. (12) on whole arrays: the mean of each weight over the devices whose mask has it.

    Args:
      values: the devices' weights; entries outside the mask do not matter.  [num_devices, num_weights]
      masks: which weights each device kept.  [num_devices, num_weights]
      previous: what the edge had; kept where no device kept a weight.  [num_weights]
      weights: c_n, e.g. data sizes; the paper has 1 for all.  [num_devices]
    """
    numbers = "must be an array of real numbers"
    values = array_of("aggregate.values", values, numbers, kinds="fiu")
    previous = array_of("aggregate.previous", previous, numbers, kinds="fiu")
    masks = array_of("aggregate.masks", masks, "must be an array of true and false", kinds="biuf") != 0
    if values.ndim != 2 or masks.shape != values.shape or previous.shape != values.shape[1:]:
        shapes = f"{values.shape}, {masks.shape}, {previous.shape}"
        raise InvalidValue("aggregate", "needs values and masks [devices, weights] and previous [weights]", shapes)
    if not np.issubdtype(previous.dtype, np.floating):
        previous = previous.astype(np.float64)
    factors = np.ones(len(values)) if weights is None else quantity("aggregate.weights", weights, at_least=0.0)
    if factors.shape != (len(values),):
        raise InvalidValue("aggregate.weights", f"must have one entry for each of {len(values)} devices", factors.shape)
    running = MaskedSum.zeros(values.shape[1], slice(0, values.shape[1]))
    for value, mask, factor in zip(values, masks, factors, strict=True):
        running.add(np.where(mask, value, 0.0), mask, float(factor))
    return running.mean(previous)
