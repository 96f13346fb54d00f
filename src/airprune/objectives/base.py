"""What an objective is: a term added to the gradient of every local step, and what the device remembers of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.components import Component

Array = np.ndarray
Memory = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalRun:
    """What a device has done in one edge round, for what is remembered of it.

    Attributes:
      received, trained: flat states before and after.  [num_state]
      learning_rate, num_steps: of the round.
      loss: mean training loss over the minibatches seen.
    """

    received: Array
    trained: Array
    learning_rate: float
    num_steps: int
    loss: float = np.nan


@dataclass(frozen=True, kw_only=True)
class Objective(Component):
    """One local objective; every function takes the component's options first.

    Attributes:
      adjust: adds its term to `gradient` in place; None for no term. Arrays hold the parameters.  [num_parameters]
        Whatever it does to weights that may not move is undone after it.
      finish: the device's memory after the round; None if it has none.
    """

    adjust: Callable[[Any, Array, Array, Array, Memory], None] | None = None
    finish: Callable[[Any, LocalRun, Memory], dict[str, Array]] | None = None
