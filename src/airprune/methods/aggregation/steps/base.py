"""What a server step is: from the parent's model and the combined one to the parent's next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.components.component import Listed

Array = np.ndarray
Values = dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class Step(Listed):
    """One way to move; takes the component's options first.

    Slots are declared for one parent (owner CLOUD); at the edges each has its own.

    Attributes:
      move: of (previous model, combined model, which entries some child held, slots) → (model, slots). What nobody
        held keeps its value in the model and in every slot; None means that everything was held.
    """

    move: Callable[[Any, Array, Array, Array | None, Values], tuple[Array, Values]]


def where_held(held: Array | None, new: Array, old: Array) -> Array:
    """`new` where somebody held the entry, else `old`."""
    return new if held is None else np.where(held, new, old)
