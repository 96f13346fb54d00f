"""What an objective is: a term added to the gradient of every local step, and what the device remembers of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from airprune.components.component import Component, ModelShape, ReportKind

Array = np.ndarray
Memory = Mapping[str, Array]
Values = dict[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalRun:
    """What a device has done in one edge round, for what is remembered of it.

    Attributes:
      received, trained: flat states before and after.  [num_state]
      learning_rate, num_steps: of the round.
      loss: mean training loss over the minibatches seen.
      num_samples: samples trained on, each counted once per epoch.
      moves: which parameters the steps could change; None for all.  [num_parameters] bool
      gradient_sum: Σ over the steps of the gradient, or of its square, before anything is masked, of all parameters;
        only if the masking collects it.  [num_parameters]
    """

    received: Array
    trained: Array
    learning_rate: float
    num_steps: int
    loss: float
    num_samples: int
    moves: Array | None = None
    gradient_sum: Array | None = None


class Objective(Component):
    """One local objective. What is not overridden adds nothing and costs nothing.

    Attributes:
      broadcast: slots of the cloud that devices receive: `adjust` and `finish` find them in the memory.
      plain_steps: whether it is defined for SGD without momentum alone.
    """

    broadcast: ClassVar[tuple[str, ...]] = ()
    plain_steps: ClassVar[bool] = False

    def adjust(self, gradient: Array, weights: Array, received: Array, memory: Memory) -> None:
        """Adds its term to `gradient` in place. Arrays hold the parameters.  [num_parameters]

        Whatever it does to weights that may not move is undone after it.
        """

    def finish(self, run: LocalRun, memory: Memory) -> Values:
        """Returns the device's slots that change with the round."""
        return {}

    def report(self, before: Memory, after: Memory) -> Values:
        """Returns arrays to be summed over all devices of the round, given the memory before and after."""
        return {}

    def reported(self, shape: ModelShape) -> Mapping[str, ReportKind] | None:
        """Returns what these arrays are, by name; None: not declared: a deployment can bound their size alone."""
        return None

    def update(self, values: Values, sums: Values) -> Values:
        """Returns the run's slots as the sums of an edge round change them; in the driver."""
        return values

    def close(self, values: Values, num_devices: int) -> Values:
        """Returns the run's slots after a global round, given the number of devices of the network; in the driver."""
        return values

    def upload_bits(self, shape: ModelShape, value_bits: float) -> float:
        """Bits that a device sends beside its update, and every node above it too."""
        return 0.0
