"""Gradients of any torch module, by torch itself."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch.nn import functional as F

from airprune.errors import InvalidValue
from airprune.flat import LocalModel
from airprune.kernels.base import Gradient, Kernel
from airprune.models import FlatModel

Array = np.ndarray


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor on the array's own memory, also if that is a read-only map of a file; nothing here writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


class MinibatchLoss:
    """F(w, ξ) of Eq. (7) on minibatches of samples that all devices share."""

    def __init__(self, model: LocalModel, x: Array, y: Array) -> None:
        if not isinstance(model, FlatModel):
            raise InvalidValue("MinibatchLoss.model", "must be a FlatModel, a torch module", type(model).__name__)
        self.model = model
        self.x = tensor_of(x).to(model.state.dtype) if model.state.dtype == torch.float64 else tensor_of(x)
        self.y = tensor_of(y)

    def __call__(self, batch: Array) -> torch.Tensor:
        return F.cross_entropy(self.outputs(batch), self.y[torch.from_numpy(batch)])

    def outputs(self, batch: Array) -> torch.Tensor:
        """What the model says of these samples, before the softmax.  [num_samples, num_classes]"""
        x = self.x[torch.from_numpy(batch)]
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        outputs: torch.Tensor = self.model.module(x)
        return outputs

    def value(self, batch: Array) -> float:
        with torch.no_grad():
            return self(batch).item()


def build(model: FlatModel, x: Array, y: Array) -> Gradient:
    loss_of = MinibatchLoss(model, x, y)

    def gradient(batch: Array) -> float:
        model.gradient.zero_()
        loss = loss_of(batch)
        loss.backward()
        return loss.item()

    return gradient


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


def unsupported(model: LocalModel, x: Array, y: Array) -> str:
    return "" if isinstance(model, FlatModel) else "the model is not a torch module"


KERNEL = Kernel(name="torch", summary="any torch module", unsupported=unsupported, build=build, teaching=TorchTeaching)
