"""The base class of maskings: how many whole weights fit a budget, and which a device holds, trains and sends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from airprune.components.component import Array, LocalComponent, ModelShape, Values
from airprune.wireless.device_speed.work import SecondPass


@dataclass(frozen=True, kw_only=True, eq=False)
class SubModel:
    """The role of each prunable weight on one device in one edge round; None: all of them.  Each [num_prunable] bool

    Attributes:
      sent: what travels to the edge and counts in its average.
      held: what is on the device at all; the rest is zero there, Eq. (5).
      moves: what local steps may change. A weight that is held but does not move keeps its received value.
      forward: if given, what the forward pass of a step uses of the held weights: of (step, prunable weights).
      forward_only: whether a step changes only what its forward pass used; the rest waits at its value.
      teaches: whether in a step all that is held learns from labels, and the forward pass from what that predicts.
      scale: factors of the forward pass and of its gradients.
      start: the prunable weights that the device starts from, if they are not those it received.
      sent_after: if given, what is sent in place of `sent`: of the trained prunable weights.
      units: which units stay, group by group, if `held` is nothing but their weights: then the device trains a smaller
        model instead of one with zeros, where it can.
      report: arrays to be summed over all devices of the round, e.g. scores; declared by `reported`.
      collect: which power of the dense gradient is summed over the steps, as the `gradient_sum` of the `LocalRun`; 0
        for none.
      first_trained: number of the lowest layer that is trained, in the model's order (`Tensor.layer`). Below it nothing
        moves in this round, biases and buffers included, and no backward pass is computed.
      last_trained: number of the highest layer that is trained, likewise; None: the top. The backward pass goes through
        the layers above it, whose own gradients are not computed.
      frozen_bits: bits per weight at which the layers that are not trained are computed; None: as they are.
    """

    sent: Array | None = None
    held: Array | None = None
    moves: Array | None = None
    forward: Callable[[int, Array], Array] | None = None
    forward_only: bool = False
    teaches: bool = False
    scale: Array | None = None
    start: Array | None = None
    sent_after: Callable[[Array], Array] | None = None
    units: tuple[Array, ...] | None = None
    report: Mapping[str, Array] = field(default_factory=dict)
    collect: int = 0
    first_trained: int = 0
    last_trained: int | None = None
    frozen_bits: int | None = None

    @property
    def freezes(self) -> bool:
        """True if some layers are not trained."""
        return self.first_trained != 0 or self.last_trained is not None


WHOLE = SubModel()


class DeviceView(ABC):
    """A device as its masking sees it: the dense model it received, and how many prunable weights it may keep.

    Costly values are computed on first use, by the `loss`, `_gradient` and `_rng` of a subclass.

    Args:
      device: its number in the network.
      round_index: edge rounds since the start of the run.
      keep: whole prunable weights that fit its budget.
      received: the flat state; read-only.  [num_state]
      shared: what `prepare` returned for all devices.
      memory: this device's slots.
    """

    def __init__(
        self,
        *,
        device: int,
        round_index: int,
        keep: int,
        shape: ModelShape,
        received: Array,
        learning_rate: float,
        shared: Array | None,
        memory: Mapping[str, Array],
    ) -> None:
        self.device, self.round_index = device, round_index
        self.keep, self.shape, self.learning_rate = keep, shape, learning_rate
        self.shared, self.memory, self._received = shared, memory, received

    @abstractmethod
    def loss(self, weights: Array) -> float:
        """F on the round's first minibatch as a function of the prunable weights."""

    @abstractmethod
    def _gradient(self) -> Array:
        """∇F(w, ξ) of the prunable weights on that minibatch; costs it, and lies where the next steps overwrite it."""

    @abstractmethod
    def _rng(self) -> np.random.Generator:
        """A stream of the component's own; the minibatch stream is never touched."""

    @cached_property
    def weights(self) -> Array:
        """The received prunable weights.  [num_prunable]"""
        return self.received_weights.copy()

    @property
    def received_weights(self) -> Array:
        """The same in place: not to be changed.  [num_prunable]"""
        return self._received[self.shape.prunable]

    @cached_property
    def dense_gradient(self) -> Array:
        """∇F(w, ξ) of the prunable weights of the dense model on the round's first minibatch.  [num_prunable]"""
        return self._gradient().copy()

    def passing_gradient(self) -> Array:
        """Returns the same in place: to be used before the first step, and once.  [num_prunable]"""
        known: Array | None = vars(self).get("dense_gradient")
        return self._gradient() if known is None else known

    @cached_property
    def rng(self) -> np.random.Generator:
        return self._rng()


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundView:
    """An edge round as the driver shows it to components, before and after.

    Attributes:
      round_index: edge rounds since the start of the run.
      num_rounds: of the whole run.
      model: the cloud's model as of the last global round.  [num_state]
      now: what the cloud would have if it averaged now.  [num_state]
      device: the selected devices, ascending.  [num_selected]
      keep: whole prunable weights of each of them.  [num_selected]
      rng: a stream of this round.
      device_rng: of a device's number: the stream with which that device chooses in this round.
      run_rng: a stream that is the same in every round.
      train_loss: mean over all samples of the round; NaN before it, or if no upload arrived.
    """

    round_index: int
    num_rounds: int
    global_round: int
    edge_round: int
    shape: ModelShape
    model: Array
    now: Callable[[], Array]
    device: Array
    keep: Array
    rng: Callable[..., np.random.Generator]
    device_rng: Callable[[int], np.random.Generator]
    run_rng: Callable[[], np.random.Generator]
    train_loss: float = np.nan


@dataclass(frozen=True)
class Charges:
    """The costs of a masking beside the weights.

    Attributes:
      uplink_bits: per device that sends fewer than all weights, e.g. which ones they are.
      index_bits: per kept weight, if a list of positions may take the place of `uplink_bits` where it is shorter.
      always_bits: per device, whatever it sends.
      late_bits: per device, sent beside the weights whatever the deadline: on the clock, but not in the plan.
      probe: whether the device computes one more minibatch on the whole model.
      dense_gradients: whether it computes the gradients of all weights, although its forward pass uses only some.
      second_pass: what every step computes once more on a part of the sub-model, if it does.
    """

    uplink_bits: float = 0.0
    index_bits: float = np.inf
    always_bits: float = 0.0
    late_bits: float = 0.0
    probe: bool = False
    dense_gradients: bool = False
    second_pass: SecondPass | None = None

    def mask_bits(self, kept: Array) -> Array:
        """Bits that say which weights are sent, if these are so many and not all: a bitmap or a list of positions."""
        with np.errstate(invalid="ignore"):  # 0 · ∞
            return np.fmin(self.uplink_bits, kept * self.index_bits)

    @property
    def beside_bits(self) -> float:
        """Per device, whatever it sends: in the plan or not."""
        return self.always_bits + self.late_bits


FREE = Charges()


def own_mask(shape: ModelShape) -> Charges:
    """Charges of a mask that a device chooses: min(W_f, K ⌈log2 W_f⌉) bits, a bitmap or a list of K positions."""
    prunable = shape.prunable_weights
    return Charges(uplink_bits=float(prunable), index_bits=float(max(prunable - 1, 1).bit_length()))


def as_prepared(view: RoundView, shared: Array | None) -> Array:
    """Returns the `counts` of a masking whose `prepare` makes one mask for all devices."""
    return np.full_like(view.keep, view.shape.prunable_weights if shared is None else np.count_nonzero(shared))


class Masking(LocalComponent):
    """One way to choose sub-models. What is not overridden decides nothing and costs nothing.

    Attributes:
      dense_compute: the share of a step's compute that is done on the whole model, whatever is kept.
      teaches: whether its sub-models do, which not every kernel can.
    """

    dense_compute: ClassVar[float] = 0.0
    teaches: ClassVar[bool] = False

    @abstractmethod
    def choose(self, view: DeviceView) -> SubModel:
        """Chooses the sub-model of a device; on the device."""

    def num_kept(self, budget: Array, shape: ModelShape) -> Array:
        """Returns the whole prunable weights that each budget buys; in the driver, before the clock.  [num_devices]"""
        return budget

    def bounds(self, shape: ModelShape, values: Values) -> tuple[int, int] | None:
        """Returns the fewest and the most prunable weights of its sub-models in the round to come.

        Plans stay between them, and a device that cannot train the fewest is excluded. None: any number.
        """
        return None

    def sizes(self, shape: ModelShape) -> Array | None:
        """Returns the prunable weights of each of its sub-models, ascending, for schemes that choose among them.

        None: any number.  [num_sizes]
        """
        return None

    def broadcast_weights(self, shape: ModelShape, largest: Array) -> Array:
        """Returns how many prunable weights the broadcast of each edge carries; fewer than all where that suffices.

        Args:
          largest: the most prunable weights that a device of each edge keeps.  [num_edges]
        """
        return np.full_like(largest, shape.prunable_weights)

    def charges(self, round_index: int, shape: ModelShape, value_bits: float) -> Charges:
        """Returns what planner and clock add in a round."""
        return FREE

    def fully_charged(self) -> Masking:
        """Returns the same masking with every cost charged that its options could leave out."""
        return self

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        """Returns an array for all devices, and the run's slots as they change; in the driver, after planning."""
        return None, values

    def counts(self, view: RoundView, shared: Array | None) -> Array | None:
        """Returns the whole prunable weights that each device sends, given the array of `prepare`; in the driver.

        They may exceed the budgets unless it `adapts`. None: as the budgets say.  [num_selected]
        """
        return None

    def stays(self, values: Values) -> Array | None:
        """Returns which prunable weights the model has at all; the others become zero in the models of all nodes.

        In the driver, after `after_edge_round`. None for all.  [num_prunable] bool
        """
        return None

    def evaluated(self, shape: ModelShape, model: Array, values: Values) -> Array:
        """Returns the model as it is used, from a server's model and the run's slots.  [num_state]"""
        return model

    @property
    def adapts(self) -> bool:
        """True if it keeps the deadline that its scheme keeps."""
        return True

    @property
    def whole_units(self) -> bool:
        """True if its masks remove whole units, which saves work on dense hardware."""
        return False

    @property
    def by_data(self) -> bool:
        """True if the mask depends on the samples of a device, and so reveals something about them."""
        return True
