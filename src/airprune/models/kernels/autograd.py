"""Gradients of any torch module, by torch itself."""

from __future__ import annotations

import warnings

import numpy as np
import torch
import torch.nn.functional as F

from airprune.errors import InvalidValue
from airprune.models.catalogue import FlatModel
from airprune.models.kernels.base import Gradient, Kernel, Stacked
from airprune.models.kernels.devices import ACCELERATORS, Twin
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY, LOSSES
from airprune.models.losses.base import Loss

Array = np.ndarray


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
      home: what computes: the model itself on a CPU, else its twin.
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

    def __call__(self, batch: Array) -> torch.Tensor:
        index = self.index(batch)
        return self.loss.mean(self.outputs(batch), self.y[index])

    def index(self, batch: Array) -> torch.Tensor:
        index = torch.from_numpy(batch)
        return index if self.twin is None else index.to(self.twin.device)

    def outputs(self, batch: Array) -> torch.Tensor:
        """Returns the model's scores of these samples, before the softmax.  [num_samples, num_classes]"""
        x = self.x[self.index(batch)]
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        outputs: torch.Tensor = (self.twin or self.model).module(x)
        return outputs

    def value(self, batch: Array) -> float:
        with torch.no_grad():
            if self.twin is None:
                return self(batch).item()
            self.twin.take()
            value = self(batch).item()
            self.twin.give()
            return value

    def gradient(self, batch: Array) -> float:
        """Leaves ∇F in the model's gradient; returns F."""
        home = self.twin or self.model
        if self.twin is not None:
            self.twin.take()
        home.gradient.zero_()
        loss = self(batch)
        loss.backward()
        if self.twin is not None:
            self.twin.give()
        return loss.item()


def build(model: FlatModel, x: Array, y: Array, *, loss: Loss | None = None, device: str = "cpu") -> Gradient:
    return MinibatchLoss(model, x, y, loss=loss, device=device).gradient


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
)
