"""What an aggregation is: an ordered monoid (zero, add, merge) and what the parent makes of the sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np

from airprune.components.component import Listed
from airprune.methods.aggregation.masked_sum import MaskedSum

Array = np.ndarray


class Sum(Protocol):
    """What is added up. Adding and merging happen in a fixed order, so every engine ends in the same bits."""

    @classmethod
    def zeros(cls, num_state: int, prunable: slice) -> Self: ...

    def add(self, state: Array, mask: Array | None, weight: float = 1.0) -> None:
        """One child: its state, zero where `mask` (over the prunable weights) is false; None for all of it."""

    def merge(self, other: Self) -> None: ...

    def copy(self) -> Self: ...

    @property
    def kept_by(self) -> Array:
        """How many children sent each prunable weight.  [num_prunable]"""

    all_count: int


def alike(options: Any, num_samples: Array) -> Array:
    return np.ones(len(num_samples))


@dataclass(frozen=True, kw_only=True)
class Aggregation(Listed):
    """One way to combine; every function takes the component's options first.

    Attributes:
      finish: the combined model from the sum and what the parent had before.  [num_state]
      weights: c_n of each child, given the samples it stands for.  [num_children]
      Sum: what is added up.
      absent: at an edge, how devices count that it serves and did not hear from: of (combined model, what the edge had,
        the share of its devices' weight that was heard) → combined model. None: they do not count.
      counts: at the cloud, which samples a child stands for: those of all devices it serves, or of the uploads it has
        heard since the last global round.
      read: what is added of a child, given its model and what the parent had: a new array; None: its model.
      by_group: whether a device that uploads for others combines them by this rule; its sum then has `add_member`.
      at_rate: the options for a round with this learning rate; None if it does not matter.
    """

    finish: Callable[[Any, Any, Array], Array]
    weights: Callable[[Any, Array], Array] = alike
    Sum: type[Any] = MaskedSum
    absent: Callable[[Any, Array, Array, float], Array] | None = None
    counts: Literal["served", "heard"] = "served"
    read: Callable[[Any, Array, Array], Array] | None = None
    by_group: bool = False
    at_rate: Callable[[Any, float], Any] | None = None
