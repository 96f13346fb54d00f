"""The base class of server optimisers: from the model of a node and the aggregate to its next model."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from airprune.components.component import Array, Component, Values


class Step(Component):
    """A server optimiser. Slots are declared for one parent (owner CLOUD); at the edges each has its own."""

    @abstractmethod
    def move(self, previous: Array, combined: Array, held: Array | None, own: Values) -> tuple[Array, Values]:
        """Returns the parent's next model and its slots.

        An entry that no child held keeps its value in the model and in every slot.

        Args:
          previous: the parent's model.  [num_state]
          combined: the children's.  [num_state]
          held: which entries some child held; None: all.  [num_state] bool
          own: the parent's slots.
        """


def where_held(held: Array | None, new: Array, old: Array) -> Array:
    """Returns `new` where a child held the entry, else `old`."""
    return new if held is None else np.where(held, new, old)
