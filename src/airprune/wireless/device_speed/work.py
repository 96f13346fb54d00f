"""FLOPs of a model per sample, layer by layer; a multiplication and an addition are two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

Array = np.ndarray

NOT_COUNTED = "biases, activations, pooling, normalisation, the loss and the optimiser's step"


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """One layer's FLOPs for one sample.

    Attributes:
      prunable: whether masks choose among its weights.
      forward: the layer's output.
      input_gradient: 0 in the first layer: the gradient of the data is not needed.
      weight_gradient: 0 in a layer that is not trained.
    """

    name: str
    prunable: bool
    forward: float
    input_gradient: float
    weight_gradient: float

    @property
    def total(self) -> float:
        return self.forward + self.input_gradient + self.weight_gradient


@dataclass(frozen=True, kw_only=True)
class ModelWork:
    """All layers, and what the count may miss.

    Attributes:
      uncertain: modules with weights of kinds that are not counted by layer; of these, only what torch's own counter
        sees of the forward pass is counted.
    """

    layers: tuple[LayerWork, ...]
    uncertain: tuple[str, ...] = ()

    @property
    def flops_per_sample(self) -> float:
        """Forward and backward."""
        return sum(layer.total for layer in self.layers)

    @property
    def forward(self) -> float:
        return sum(layer.forward for layer in self.layers)

    @property
    def prunable(self) -> float:
        """FLOPs of the layers that masks choose in, forward and backward."""
        return sum(layer.total for layer in self.layers if layer.prunable)

    @property
    def prunable_weight_gradients(self) -> float:
        return sum(layer.weight_gradient for layer in self.layers if layer.prunable)


@dataclass(frozen=True)
class SecondPass:
    """A second pass in every local step over a smaller part of what a device keeps, for a short list of sub-models.

    Attributes:
      sub_models: (prunable weights kept, prunable weights of the second pass on average), ascending.
    """

    sub_models: tuple[tuple[int, float], ...]

    @cached_property
    def kept(self) -> Array:
        return np.array([kept for kept, _ in self.sub_models], dtype=np.int64)

    @cached_property
    def second(self) -> Array:
        return np.array([second for _, second in self.sub_models], dtype=np.float64)

    def weights(self, keep: Array) -> Array:
        """Prunable weights of the second pass of devices that keep so many: of the largest sub-model within them."""
        place = np.searchsorted(self.kept, keep, side="right") - 1
        return self.second[np.maximum(place, 0)]

    @cached_property
    def line(self) -> tuple[float, float]:
        """(m, c): m keep + c is never below `weights`, and right for the smallest sub-model.

        So the devices that can train the smallest one are known exactly. m ≤ 1 where the second pass of a sub-model is
        a mean over it and smaller ones.
        """
        rise, run = self.second[1:] - self.second[0], self.kept[1:] - self.kept[0]
        slope = float(np.max(rise / run, initial=0.0))
        return slope, float(self.second[0] - slope * self.kept[0])
