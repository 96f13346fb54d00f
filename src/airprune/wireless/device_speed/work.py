"""FLOPs of a model per sample, layer by layer; a multiplication and an addition are two."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from airprune.components.units import UnitGraph

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
      number: of the layer, in the model's order (`Tensor.layer`).
      fed_by: the highest number of the trained layers that its input depends on; -1 for none. Of a layer that is used
        several times, the highest of all uses.
    """

    name: str
    prunable: bool
    forward: float
    input_gradient: float
    weight_gradient: float
    number: int = 0
    fed_by: int = -1

    @property
    def total(self) -> float:
        return self.forward + self.input_gradient + self.weight_gradient

    def is_frozen(self, first_trained: int) -> bool:
        """True if its output is the same in all steps of a round, where layers from `first_trained` on are trained."""
        return max(self.number, self.fed_by) < first_trained

    def step(self, first_trained: int, last_trained: int | None = None, *, frozen_forward: float = 1.0) -> float:
        """Forward, the weight gradient if it is trained, and the input gradient if something below it is.

        Args:
          frozen_forward: cost of an operation in the forward pass of a layer that is not trained, as a share.
        """
        if first_trained == 0 and last_trained is None:
            return self.total
        is_trained = self.number >= first_trained and (last_trained is None or self.number <= last_trained)
        forward = self.forward if is_trained else self.forward * frozen_forward
        weight_gradient = self.weight_gradient if is_trained else 0.0
        return forward + weight_gradient + (self.input_gradient if self.fed_by >= first_trained else 0.0)


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

    def step_flops(
        self,
        first_trained: int = 0,
        last_trained: int | None = None,
        *,
        frozen_forward: float = 1.0,
        from_features: bool = False,
    ) -> float:
        """FLOPs of one sample in a local step that trains the layers from `first_trained` on, up to `last_trained`.

        Args:
          frozen_forward: cost of an operation in the forward pass of the others, as a share.
          from_features: whether the outputs of the layers below are known, from an earlier epoch of the round.
        """
        flops = sum(layer.step(first_trained, last_trained, frozen_forward=frozen_forward) for layer in self.layers)
        return flops - self.frozen_forward(first_trained) if from_features else flops

    def frozen_forward(self, first_trained: int) -> float:
        """FLOPs of one sample in the layers whose outputs stay the same in all steps of a round."""
        return sum(layer.forward for layer in self.layers if layer.is_frozen(first_trained))

    def round_flops(
        self, visits: Array, samples: Array, first_trained: int = 0, *, keeps_features: bool = True
    ) -> Array:
        """FLOPs of a device in a round.

            visits · step                                   if a sample is visited once, or features are not kept
            visits · (step − frozen) + samples · frozen     otherwise

        Args:
          visits: sample passes, each sample counted once per epoch.  [num_devices]
          samples: distinct ones among them.  [num_devices]
        """
        frozen = self.frozen_forward(first_trained) if keeps_features else 0.0
        return np.asarray(visits * self.step_flops(first_trained) - (visits - samples) * frozen)

    def step_s(
        self,
        whole_s: float,
        first_trained: int = 0,
        *,
        forward_s: float | None = None,
        overhead_s: float = 0.0,
        from_features: bool = False,
    ) -> float:
        """Seconds of one sample in such a step, from measured ones: T of a step of the whole model, and others.

            c + (T − c) · step / whole
            c + T_f · (step's forward) / (whole's) + (T − c − T_f) · (step's backward) / (whole's)

        Args:
          whole_s: T.
          forward_s: T_f of a forward pass. With it, FLOPs forward and backward may take unequal time: some kernels do
            fewer operations in the backward pass than are counted.
          overhead_s: c, whatever the step computes.
        """
        step = self.step_flops(first_trained, from_features=from_features)
        if forward_s is None:
            return overhead_s + (whole_s - overhead_s) * step / self.flops_per_sample
        ahead = self.forward - (self.frozen_forward(first_trained) if from_features else 0.0)
        back_s = (whole_s - overhead_s - forward_s) * (step - ahead) / (self.flops_per_sample - self.forward)
        return overhead_s + forward_s * ahead / self.forward + back_s

    def narrowed(self, graph: UnitGraph, counts: Iterable[int]) -> ModelWork:
        """Returns the FLOPs of the model that keeps so many units of each group: `UnitGraph.counts` of a width."""
        names = [layer.name.removesuffix(".weight") for layer in graph.layers]
        share = dict.fromkeys(names, 1.0)
        for group, count in zip(graph.groups, counts, strict=True):
            for layer in (group.layer, *(reader for reader, _ in group.feeds)):
                share[names[layer]] *= count / group.num_units
        return replace(self, layers=tuple(_scaled(layer, share.get(layer.name, 1.0)) for layer in self.layers))


def _scaled(layer: LayerWork, share: float) -> LayerWork:
    """FLOPs are whole: what rounding of the share has left is taken away."""
    return replace(
        layer,
        forward=float(round(layer.forward * share)),
        input_gradient=float(round(layer.input_gradient * share)),
        weight_gradient=float(round(layer.weight_gradient * share)),
    )


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
