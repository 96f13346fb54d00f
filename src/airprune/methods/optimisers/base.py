"""The base class of local optimisers: what a device makes of the gradient of a minibatch.

An optimiser keeps nothing between rounds: momentum and moments start from zero on every device and in every edge round,
since a device may not be selected again for long, and its model has been averaged in between.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from airprune.components.component import Component

if TYPE_CHECKING:
    import torch

    from airprune.models.layout import Part

Array = np.ndarray
Step = Callable[[Array, Array, float], None]
"""Moves weights, in place, by their gradient and the learning rate of the step.  Arrays [num_moving]"""


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """The settings of `[train]` that all optimisers share.

    Attributes:
      learning_rate: η of the round; a step gets its own.
      tensors: places and shapes of the tensors in the arrays of a step; only for optimisers with `by_tensor`.
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    tensors: Sequence[Part] = ()


class Optimiser(Component):
    """One local optimiser.

    Attributes:
      decays: whether it applies the weight decay itself; else w · weight_decay is added to the gradient before it.
      stays: whether a weight whose gradient is always 0 stays as it is; else pruned and frozen weights are put back
        after every step.
      by_tensor: whether a step must know the shapes of the tensors.
    """

    decays: ClassVar[bool] = True
    stays: ClassVar[bool] = False
    by_tensor: ClassVar[bool] = True

    @abstractmethod
    def torch_optimizer(self, parameters: Iterable[Any], settings: StepSettings) -> torch.optim.Optimizer:
        """Returns the optimiser as torch has it, for these parameters; training functions get it from their context."""

    def begin(self, settings: StepSettings) -> Step:
        """Returns the steps of one device in one edge round, with no state of earlier ones.

        Unless overridden, those of `torch_optimizer`, on the tensors themselves.
        """
        import torch  # which devices with the native kernel do without

        parameters = [torch.nn.Parameter(torch.empty(tensor.shape)) for tensor in settings.tensors]
        made = self.torch_optimizer(parameters, settings)

        def step(weights: Array, gradient: Array, learning_rate: float) -> None:
            flat, flat_gradient = torch.from_numpy(weights), torch.from_numpy(gradient)
            for tensor, parameter in zip(settings.tensors, parameters, strict=True):
                parameter.data, parameter.grad = tensor.view(flat), tensor.view(flat_gradient)
            for group in made.param_groups:
                group["lr"] = learning_rate
            made.step()

        return step
