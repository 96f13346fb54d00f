"""What an objective is: a term added to the gradient of every local step, and what the device remembers of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, kw_only=True)
class Objective(Component):
    """One local objective; every function takes the component's options first.

    Attributes:
      adjust: adds its term to `gradient` in place; None for no term. Arrays hold the parameters.  [num_parameters]
        Whatever it does to weights that may not move is undone after it.
      finish: the device's memory after the round; None if it has none.
      broadcast: slots of the cloud that devices are told: `adjust` and `finish` find them in the memory.
      report: of (memory before, memory after) → arrays to be summed over all devices of the round.
      reported: what these arrays are, by name; None: not declared, so that a deployment can bound their size alone.
      update: in the driver, after an edge round: the run's slots as the sums change them.
      close: in the driver, after a global round: the run's slots, given the number of devices of the network.
      upload_bits: of (model, bits of a value): what a device sends beside its update, and every node above it too.
      plain_steps: whether it is defined for SGD without momentum alone.
    """

    adjust: Callable[[Any, Array, Array, Array, Memory], None] | None = None
    finish: Callable[[Any, LocalRun, Memory], dict[str, Array]] | None = None
    broadcast: tuple[str, ...] = ()
    report: Callable[[Any, Memory, Memory], Values] | None = None
    reported: Callable[[Any, ModelShape], Mapping[str, ReportKind]] | None = None
    update: Callable[[Any, Values, Values], Values] | None = None
    close: Callable[[Any, Values, int], Values] | None = None
    upload_bits: Callable[[Any, ModelShape, float], float] | None = None
    plain_steps: bool = False
