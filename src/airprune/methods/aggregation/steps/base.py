"""What a server step is: from the parent's model and the combined one to the parent's next."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from airprune.components.component import Array, Component, Values


class Step(Component):
    """One way to move. Slots are declared for one parent (owner CLOUD); at the edges each has its own."""

    @abstractmethod
    def move(self, previous: Array, combined: Array, held: Array | None, own: Values) -> tuple[Array, Values]:
        """Returns the parent's next model and its slots.

        What nobody held keeps its value in the model and in every slot.

        Args:
          previous: the parent's model.  [num_state]
          combined: the children's.  [num_state]
          held: which entries some child held; None: all.  [num_state] bool
          own: the parent's slots.
        """


def where_held(held: Array | None, new: Array, old: Array) -> Array:
    """`new` where somebody held the entry, else `old`."""
    return new if held is None else np.where(held, new, old)
