"""The base class of aggregations: an ordered monoid (zero, add, merge), and the combined model from the sum."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal, Self

import numpy as np

from airprune.components.component import Array, Component
from airprune.methods.aggregation.cohort import Cohort, CohortView
from airprune.methods.aggregation.masked_sum import MaskedSum


class Aggregation(Component):
    """One way to combine.

    Attributes:
      Sum: what is added up: masked sums, or a class derived from them. Adding and merging happen in a fixed order, so
        every engine ends in the same bits.
      counts: at the cloud, which samples a child stands for: those of all devices it serves, or of the uploads it has
        received since the last global round.
      by_group: whether a device that uploads for others combines them by this rule; its sum then has its own
        `add_member`.
      by_work: whether a device counts by the steps it has made; the `add_member` of its sum is then given its `work`,
        and its weight is the number of its samples.
      compares: whether it compares children with each other, so that each must arrive by itself, not in a sum.
    """

    Sum: ClassVar[type[MaskedSum]] = MaskedSum
    counts: ClassVar[Literal["served", "heard"]] = "served"
    by_group: ClassVar[bool] = False
    by_work: ClassVar[bool] = False
    compares: ClassVar[bool] = False

    @abstractmethod
    def finish(self, total: MaskedSum, previous: Array) -> Array:
        """Returns the combined model from the sum, a `Sum`, and what the parent had before.  [num_state]"""

    def weights(self, num_samples: Array) -> Array:
        """Returns c_n of each child, given the samples it stands for.  [num_children]"""
        return np.ones(len(num_samples))

    def read(self, state: Array, previous: Array) -> Array:
        """Returns what is added of a child, given its model and what the parent had; if not the model, a new array."""
        return state

    def absent(self, combined: Array, previous: Array, heard_share: float) -> Array:
        """Returns an edge's combined model with those of its devices counted that did not upload.

        Args:
          previous: what the edge had.  [num_state]
          heard_share: share of its devices' weight that uploaded.
        """
        return combined

    def cohort(self, view: CohortView) -> Cohort | None:
        """Returns the devices of an edge whose updates reach it as one sum in a round; None: each reaches it by itself.

        The sum is given it before the first of them is added (`MaskedSum.begin`).
        """
        return None

    def at_rate(self, learning_rate: float) -> Self:
        """Returns the aggregation for a round with this learning rate."""
        return self
