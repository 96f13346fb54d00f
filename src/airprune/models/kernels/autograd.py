"""Gradients of any torch module, by torch itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

from airprune.errors import InvalidValue
from airprune.models.catalogue import FlatModel
from airprune.models.kernels.base import Features, Gradient, Kernel, Stacked, TrainedPart
from airprune.models.kernels.devices import ACCELERATORS, Twin
from airprune.models.kernels.partial import Cut, Frozen, cut
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY, LOSSES
from airprune.models.losses.base import Loss

Array = np.ndarray
# Samples whose features are computed in one forward pass: a fixed number, since sums may round by how many there are.
FEATURES_AT_ONCE = 128


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor on the array's own memory, also if that is a read-only map of a file; nothing here writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def in_precision(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Features and targets in the model's precision; classes and tokens stay whole."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


class MinibatchLoss:
    """F(w, ξ) of Eq. (7) on minibatches of samples that all devices share.

    Attributes:
      twin: the model where it computes, if that is not on a CPU.
      transform: what is done to the samples of a minibatch before the forward pass, if anything is.
    """

    def __init__(self, model: LocalModel, x: Array, y: Array, *, loss: Loss | None = None, device: str = "cpu") -> None:
        if not isinstance(model, FlatModel):
            raise InvalidValue("MinibatchLoss.model", "must be a FlatModel, a torch module", type(model).__name__)
        self.model = model
        self.twin = None if device == "cpu" else Twin(model, device)
        self.loss = LOSSES[CROSS_ENTROPY] if loss is None else loss
        self.x, self.y = (in_precision(tensor_of(array), model.state.dtype) for array in (x, y))
        if self.twin is not None:
            self.x, self.y = self.x.to(self.twin.device), self.y.to(self.twin.device)
        self.transform: Callable[[torch.Tensor], torch.Tensor] | None = None
        self._frozen: dict[tuple[object, ...], Frozen] = {}
        self._cuts: dict[int, Cut | None] = {}

    def __call__(self, batch: Array) -> torch.Tensor:
        index = self.index(batch)
        return self.loss.mean(self.outputs(batch), self.y[index])

    def index(self, batch: Array) -> torch.Tensor:
        index = torch.from_numpy(batch)
        return index if self.twin is None else index.to(self.twin.device)

    def outputs(self, batch: Array) -> torch.Tensor:
        """Returns the model's scores of these samples, before the softmax.  [num_samples, num_classes]"""
        outputs: torch.Tensor = (self.twin or self.model).module(self.inputs(batch))
        return outputs

    def inputs(self, batch: Array) -> torch.Tensor:
        x = self.x[self.index(batch)]
        if self.transform is not None:
            x = self.transform(x)
        return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x

    def value(self, batch: Array) -> float:
        with torch.no_grad():
            if self.twin is None:
                return self(batch).item()
            self.twin.take()
            value = self(batch).item()
            self.twin.give()
            return value

    def gradient(self, batch: Array, part: TrainedPart | None = None) -> float:
        """Leaves ∇F in the model's gradient, of a part alone if there is one; returns F."""
        if part is not None:
            with self._frozen_by(part).held():
                return self._gradient(batch, part.features)
        return self._gradient(batch, None)

    def _gradient(self, batch: Array, features: Features | None) -> float:
        home = self.twin or self.model
        if self.twin is not None:
            self.twin.take()
        home.gradient.zero_()
        loss = self(batch) if features is None else self._above(batch, features)
        loss.backward()
        if self.twin is not None:
            self.twin.give()
        return loss.item()

    def _above(self, batch: Array, features: Features) -> torch.Tensor:
        """F from the features of these samples."""
        found, tensors = features.values
        places = features.places(batch)
        outputs = found.above(*(self.gathered(values, places) for values in tensors))
        return self.loss.mean(outputs, self.y[self.index(batch)])

    def gathered(self, values: torch.Tensor, places: Array) -> torch.Tensor:
        """Returns a copy of the features at these places, laid out as inputs are."""
        found = values[self.index(places)]
        return found.contiguous(memory_format=torch.channels_last) if found.dim() == 4 else found

    def keep_features(self, part: TrainedPart, samples: Array, most_bytes: int) -> TrainedPart:
        """Returns the part with features of all of these samples, if they fit and the module can be cut there."""
        if part.first_trained not in self._cuts:
            module = (self.twin or self.model).module
            self._cuts[part.first_trained] = cut(module, self.model.parts, part.first_trained)
        found = self._cuts[part.first_trained]
        if found is None:
            return part
        with torch.no_grad(), self._frozen_by(part).held():
            if self.twin is not None:
                self.twin.take()
            one = found.below(self.inputs(samples[:1]))
            by_sample = all(isinstance(tensor, torch.Tensor) and tensor.dim() and len(tensor) == 1 for tensor in one)
            if not by_sample or sum(tensor.nbytes for tensor in one) * len(samples) > most_bytes:
                return part
            pieces = [samples[start : start + FEATURES_AT_ONCE] for start in range(0, len(samples), FEATURES_AT_ONCE)]
            computed = [found.below(self.inputs(piece)) for piece in pieces]
            values = tuple(torch.cat(tensors) for tensors in zip(*computed, strict=True))
        return replace(part, features=Features(samples, (found, values)))

    def _frozen_by(self, part: TrainedPart) -> Frozen:
        key = part.tensors, part.first_trained, part.last_trained
        if key not in self._frozen:
            self._frozen[key] = Frozen((self.twin or self.model).module, self.model.parts, part)
        return self._frozen[key]


class TorchGradient:
    """∇F(w, ξ) of a torch module into the gradient of its model."""

    def __init__(self, loss: MinibatchLoss) -> None:
        self._loss = loss
        self.keep_features = loss.keep_features

    @property
    def transform(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        return self._loss.transform

    @transform.setter
    def transform(self, transform: Callable[[torch.Tensor], torch.Tensor] | None) -> None:
        self._loss.transform = transform

    def __call__(self, batch: Array) -> float:
        return self._loss.gradient(batch)

    def of_part(self, batch: Array, part: TrainedPart) -> float:
        return self._loss.gradient(batch, part)


def build(model: FlatModel, x: Array, y: Array, *, loss: Loss | None = None, device: str = "cpu") -> Gradient:
    return TorchGradient(MinibatchLoss(model, x, y, loss=loss, device=device))


class TorchTeaching:
    """Distillation: probabilities that are predicted once are targets for another pass."""

    def __init__(self, model: FlatModel, x: Array, y: Array) -> None:
        self._model, self._loss = model, MinibatchLoss(model, x, y)

    def teach(self, batch: Array) -> tuple[float, torch.Tensor]:
        self._model.gradient.zero_()
        outputs = self._loss.outputs(batch)
        loss = F.cross_entropy(outputs, self._loss.y[torch.from_numpy(batch)])
        loss.backward()
        return loss.item(), outputs.detach().softmax(dim=1)

    def learn(self, batch: Array, probabilities: torch.Tensor) -> float:
        self._model.gradient.zero_()
        loss = F.cross_entropy(self._loss.outputs(batch), probabilities)
        loss.backward()
        return loss.item()


def stack(model: FlatModel, x: Array, y: Array, *, loss: Loss | None, batch_size: int, num_rows: int) -> Stacked | None:
    from airprune.models.kernels import stacked  # which computes what this module does, on many models

    return stacked.build(model, x, y, loss=loss, batch_size=batch_size, num_rows=num_rows)


def unsupported(model: LocalModel, x: Array, y: Array) -> str:
    return "" if isinstance(model, FlatModel) else "the model is not a torch module"


KERNEL = Kernel(
    name="torch",
    summary="any torch module",
    unsupported=unsupported,
    build=build,
    losses=(),
    devices=("cpu", *ACCELERATORS),
    teaching=TorchTeaching,
    stack=stack,
    takes_modules=True,
)
