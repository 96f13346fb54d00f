"""The base class of local objectives: a term added to the gradient of every local step, and its persistent state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airprune.components.component import Array, LocalComponent, Memory, Values

if TYPE_CHECKING:
    from airprune.methods.masking.base import DeviceView


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalRun:
    """The local training of a device in one edge round, from which slots and reports follow.

    Attributes:
      view: what the masking saw when it chose.
      received, trained: flat states before and after.  [num_state]
      learning_rate, num_steps: of the round.
      gradients: ‖a‖₁, the number of steps; more with momentum, by which a gradient enters later steps again.
      loss, loss_sq: mean training loss over the minibatches seen, and the mean of its square, both by samples.
      num_samples: samples trained on, each counted once per epoch.
      moves: which parameters the steps could change; None for all.  [num_parameters] bool
      gradient_sum: Σ over the steps of the gradient, or of its square, before anything is masked, of all parameters;
        only if the masking collects it.  [num_parameters]
    """

    view: DeviceView
    received: Array
    trained: Array
    learning_rate: float
    num_steps: int
    gradients: float
    loss: float
    num_samples: int
    loss_sq: float = math.nan
    moves: Array | None = None
    gradient_sum: Array | None = None


class Objective(LocalComponent):
    """One local objective. What is not overridden adds nothing and costs nothing.

    Attributes:
      broadcast: slots of the cloud that devices receive: `adjust` and `finish` find them in the memory.
      plain_steps: whether it is defined for SGD alone, with momentum or without.
      gradients: reports that the steps of all devices follow later as they follow a gradient: far too long ones would
        end their training, as far too long updates would; a deployment refuses them.
    """

    broadcast: ClassVar[tuple[str, ...]] = ()
    plain_steps: ClassVar[bool] = False
    gradients: ClassVar[tuple[str, ...]] = ()

    def adjust(self, gradient: Array, weights: Array, received: Array, memory: Memory) -> None:
        """Adds its term to `gradient` in place. Arrays hold the parameters.  [num_parameters]

        Whatever it does to weights that may not move is undone after it.
        """


__all__ = ["LocalRun", "Memory", "Objective", "Values"]
