"""What a masking is: how many whole weights a budget buys, and which of them a device holds, moves and sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from airprune.components import Component, ModelShape
from airprune.objectives.base import LocalRun

Array = np.ndarray
Values = dict[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class SubModel:
    """Which prunable weights do what on one device in one edge round; None means all of them.  Each [num_prunable] bool

    Attributes:
      sent: what travels to the edge and counts in its average.
      held: what is on the device at all; the rest is zero there, Eq. (5).
      moves: what local steps may change. A weight that is held but does not move keeps its received value.
      forward: if given, what the forward pass of a step uses of the held weights: of (step, prunable weights).
      forward_only: whether a step changes only what its forward pass used; the rest waits at its value.
      scale: factors of the forward pass and of its gradients.
      units: which units stay, group by group, if `held` is nothing but their weights: then the device trains a smaller
        model instead of one with zeros, where it can.
    """

    sent: Array | None = None
    held: Array | None = None
    moves: Array | None = None
    forward: Callable[[int, Array], Array] | None = None
    forward_only: bool = False
    scale: Array | None = None
    units: tuple[Array, ...] | None = None


WHOLE = SubModel()


class DeviceView:
    """What a device knows when it chooses: the dense model it received, and how many prunable weights it may keep.

    What costs something is made when first asked for.

    Args:
      keep: whole prunable weights that fit its budget.
      received: the flat state; read-only.  [num_state]
      gradient: gives ∇F(w, ξ) of the prunable weights on the round's first minibatch; costs that minibatch.
      loss: F on that minibatch as a function of the prunable weights.
      shared: what `prepare` made for everybody.
      memory: this device's slots.
      rng: gives a stream of the component's own; the minibatch stream is never touched.
    """

    def __init__(
        self,
        *,
        keep: int,
        shape: ModelShape,
        received: Array,
        gradient: Callable[[], Array],
        loss: Callable[[Array], float],
        learning_rate: float,
        shared: Array | None,
        memory: Mapping[str, Array],
        rng: Callable[[], np.random.Generator],
    ) -> None:
        self.keep, self.shape, self.learning_rate = keep, shape, learning_rate
        self.shared, self.memory, self.loss = shared, memory, loss
        self._received, self._gradient, self._rng = received, gradient, rng

    @cached_property
    def weights(self) -> Array:
        """The received prunable weights.  [num_prunable]"""
        return self._received[self.shape.prunable].copy()

    @cached_property
    def dense_gradient(self) -> Array:
        """∇F(w, ξ) of the prunable weights of the dense model on the round's first minibatch.  [num_prunable]"""
        return self._gradient()

    @cached_property
    def rng(self) -> np.random.Generator:
        return self._rng()


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundView:
    """What the driver shows a component before and after an edge round.

    Attributes:
      round_index: edge rounds since the start of the run.
      model: the cloud's model as of the last global round.  [num_state]
      keep: whole prunable weights of each device that takes part.  [num_devices asked]
      train_loss: mean over all samples of the round; NaN before it, or if nobody arrived.
    """

    round_index: int
    global_round: int
    edge_round: int
    shape: ModelShape
    model: Array
    keep: Array
    rng: Callable[..., np.random.Generator]
    train_loss: float = np.nan


@dataclass(frozen=True)
class Charges:
    """What a masking costs beside the weights.

    Attributes:
      uplink_bits: per device that sends fewer than all weights, e.g. which ones they are.
      always_bits: per device, whatever it sends.
      probe: whether the device computes one more minibatch on the whole model.
    """

    uplink_bits: float = 0.0
    always_bits: float = 0.0
    probe: bool = False


FREE = Charges()


def as_it_is(options: Any, budget: Array, shape: ModelShape) -> Array:
    return budget


def nothing(options: Any, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
    return FREE


def scattered(options: Any) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Masking(Component):
    """One way to choose sub-models; every function takes the component's options first.

    Attributes:
      choose: on the device: its sub-model.
      weights: in the driver, before the clock: whole prunable weights bought by each budget.  [num_devices]
      bounds: the fewest and the most prunable weights its sub-models can have in the round to come, given the run's
        slots: plans stay between them, and who cannot carry the fewest is left out. None: any number.
      charges: of a round, given its index: what planner and clock add.
      prepare: in the driver, after planning: what all devices are told, from the run's slots; may change these.
      report: on the device: arrays to be summed over all devices, e.g. scores; None for nothing.
      finish: on the device, after its local steps: the slots of its own (`view.memory`) that change; arrays it was
        given stay as they are.
      update: in the driver, after the round: the slots as the sums change them.
      judged: the model as it is used, from a server's model and the run's slots, if that is not all of it.
      dense_compute: the share of a step's compute that is done on the whole model, whatever is kept.
      whole_units: whether its masks remove whole units, which saves work on dense hardware.
    """

    choose: Callable[[Any, DeviceView], SubModel]
    weights: Callable[[Any, Array, ModelShape], Array] = as_it_is
    bounds: Callable[[Any, ModelShape, Values], tuple[int, int]] | None = None
    charges: Callable[[Any, int, ModelShape, float], Charges] = nothing
    prepare: Callable[[Any, RoundView, Values], tuple[Array | None, Values]] | None = None
    report: Callable[[Any, DeviceView, int], Values | None] | None = None
    finish: Callable[[Any, DeviceView, LocalRun], Values] | None = None
    update: Callable[[Any, RoundView, Values, Values], Values] | None = None
    judged: Callable[[Any, ModelShape, Array, Values], Array] | None = None
    dense_compute: float = 0.0
    whole_units: Callable[[Any], bool] = scattered
