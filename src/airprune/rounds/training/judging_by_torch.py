"""Loss and metric of any torch module on held-out samples, by torch."""

from __future__ import annotations

import numpy as np
import torch

from airprune.errors import InvalidValue
from airprune.models.catalogue import FlatModel
from airprune.models.kernels.autograd import in_precision, tensor_of
from airprune.models.kernels.devices import Twin
from airprune.models.layout import LocalModel
from airprune.models.losses.own import Judged

Array = np.ndarray

# Small enough for the activations of the paper's CNN to stay in cache.
BATCH = 64


class TorchJudge:
    """A `judging.Judge` for any loss and metric, on any device.

    Args:
      device: that training computes on.
    """

    def __init__(self, model: LocalModel, x: Array, y: Array, judged: Judged, *, device: str = "cpu") -> None:
        if not isinstance(model, FlatModel):
            raise InvalidValue("TorchJudge.model", "must be a FlatModel, a torch module", type(model).__name__)
        self._model, self._judged = model, judged
        self._home = model if device == "cpu" else Twin(model, device)
        self._x, self._y = tensor_of(x), tensor_of(y)
        if isinstance(self._home, Twin):
            self._x, self._y = self._x.to(self._home.device), self._y.to(self._home.device)

    def total(self, states: Array, samples: slice | Array) -> tuple[float, float]:
        index = torch.from_numpy(samples) if isinstance(samples, np.ndarray) else samples
        return evaluate(self._home, states, self._x[index], self._y[index], self._judged)

    def gradient(self, state: Array, samples: slice | Array) -> Array:
        model = self._model
        model.load(state)
        model.module.eval()
        model.gradient.zero_()
        index = torch.from_numpy(samples) if isinstance(samples, np.ndarray) else samples
        x, y = (in_precision(tensor[index].cpu(), model.state.dtype) for tensor in (self._x, self._y))
        self._judged.loss.sum(model.module(x), y).backward()
        return model.gradient.numpy().astype(np.float64)


def evaluate(
    model: FlatModel | Twin, states: Array, x: torch.Tensor, y: torch.Tensor, judged: Judged
) -> tuple[float, float]:
    """(Σ of the loss, Σ of the metric) over the samples; of accuracy the number of correct predictions.

    Args:
      states: of the models that predict together.  [num_models, num_state]
    """
    model.module.eval()
    loss = 0.0
    score: float = 0  # whole where the metric counts
    dtype = model.state.dtype
    with torch.inference_mode():
        members = []
        for state in states:
            model.load(state)
            members.append([model.module(in_precision(inputs, dtype)) for inputs in x.split(BATCH)])
        for targets, *outputs_of in zip(y.split(BATCH), *members, strict=True):
            wanted, outputs = in_precision(targets, dtype), judged.loss.combined(torch.stack(outputs_of))
            loss += float(judged.loss.sum(outputs, wanted))
            if judged.metric is not None:
                score += judged.metric.sum(outputs, wanted)
    return loss, score
