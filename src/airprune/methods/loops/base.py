"""The base class of training loops, and what a loop is given beside model and minibatches."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from airprune.components.component import Component
from airprune.errors import InvalidValue

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

TrainFunction = Callable[["nn.Module", "Iterable[tuple[Tensor, Tensor]]", "TrainingContext"], None]


class TrainingContext(ABC):
    """One device in one edge round, for its training loop.

    Attributes:
      device: its number in the network.
      global_round, edge_round: counted from 0; edge rounds within the global round.
      round_index: edge rounds since the start of the run.
      num_steps: minibatches that it may take, which the clock charges.
      time_left_s: seconds until the deadline of the edge round, upload included: as planned in a simulation, as left
        at the orders in a deployment. A loop that depends on it gives other results elsewhere.
      learning_rate: η of the round, by the schedule.
      rates: η of every step, which differ if the schedule follows local steps.  [num_steps]
      seed: a number of the device and the round. Torch's own generator has been seeded already.
      rng: a numpy generator of the device and the round.
      received: tensors of the received model by name, copies.
      mask: of every parameter with entries that may not move, where entries may: True; the others are put back
        before each minibatch and at the end.
    """

    device: int
    global_round: int
    edge_round: int
    round_index: int
    num_steps: int
    time_left_s: float | None
    learning_rate: float
    rates: tuple[float, ...]
    seed: int
    rng: np.random.Generator
    received: Mapping[str, Tensor]
    mask: Mapping[str, Tensor]

    @abstractmethod
    def received_model(self) -> nn.Module:
        """Returns a copy of the received model with its own weights, in evaluation mode and without gradients."""

    @abstractmethod
    def generator(self) -> torch.Generator:
        """Returns a torch generator that starts from the seed."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the scenario's loss; what it comes to in the round is recorded as the device's training loss."""

    @abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the scenario's optimiser for the parameters of a model."""

    @abstractmethod
    def clip_gradients(self, model: nn.Module) -> None:
        """Clips the gradients of a model as `train.clip_gradient_norm` and `train.clip_gradient_value` say."""


class Loop(Component):
    """One training loop. It changes the model's parameters in place, and keeps nothing for later rounds."""

    @abstractmethod
    def train(self, model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], context: TrainingContext) -> None:
        """Trains the model on at most all of the minibatches (x, y), each once, in order.

        Args:
          model: a torch module with the weights that the device holds: pruned ones are 0.
          batches: as many as `context.num_steps`, of all local epochs; augmented, if the scenario says so.
        """

    @staticmethod
    def of(function: TrainFunction, *, name: str = "", summary: str = "") -> type[Loop]:
        """Returns the loop that a function (model, batches, context) → None makes, for `register`.

        Args:
          name: as scenarios write it; by default the function's, with - for _.
          summary: one line; by default the first of its docstring.
        """
        text = name or function_name(function).replace("_", "-")
        lines = (getattr(function, "__doc__", None) or "a training function").strip().splitlines()

        class FromFunction(Loop):
            def train(
                self, model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], context: TrainingContext
            ) -> None:
                function(model, batches, context)

        FromFunction.name, FromFunction.summary = text, summary or lines[0].rstrip(".")
        return FromFunction


class OwnLoop(Loop):
    """A function that a script gave to `run(train=…)`; never listed."""

    name: ClassVar[str] = "own"
    summary: ClassVar[str] = "a function of a script"

    function: Callable[..., Any]

    def train(self, model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], context: TrainingContext) -> None:
        self.function(model, batches, context)


def function_name(function: Any) -> str:
    """Returns the name of a function as a key of a scenario may have it; raises if it is none."""
    if not callable(function) or isinstance(function, type):
        got = f"the class {function.__name__}" if isinstance(function, type) else type(function).__name__
        rule, way_out = "must be a function of (model, batches, context)", "See docs/training.md"
        raise InvalidValue("run.train", rule, got, way_out)
    text = getattr(function, "__name__", type(function).__name__)
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower() or "function"


__all__ = ["Loop", "OwnLoop", "TrainFunction", "TrainingContext", "function_name"]
