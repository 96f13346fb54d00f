"""FLOPs of a model per sample, layer by layer; a multiplication and an addition are two."""

from __future__ import annotations

from dataclasses import dataclass

NOT_COUNTED = "biases, activations, pooling, normalisation, the loss and the optimiser's step"


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """One layer's FLOPs for one sample.

    Attributes:
      prunable: whether masks choose among its weights.
      forward: the layer's output.
      input_gradient: 0 in the first layer: nobody asks for the gradient of the data.
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
        """Of the layers that masks choose in, forward and backward."""
        return sum(layer.total for layer in self.layers if layer.prunable)

    @property
    def prunable_weight_gradients(self) -> float:
        return sum(layer.weight_gradient for layer in self.layers if layer.prunable)
