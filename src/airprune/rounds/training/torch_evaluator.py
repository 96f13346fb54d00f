"""Loss and metric of any torch module on held-out samples, by torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from airprune.errors import InvalidValue
from airprune.models.catalogue import FlatModel
from airprune.models.kernels.autograd import in_precision, tensor_of
from airprune.models.kernels.devices import Twin
from airprune.models.layout import LocalModel
from airprune.models.losses.base import Loss, Metric
from airprune.models.losses.own import Criteria, key_of

Array = np.ndarray

# Small enough for the activations of the paper's CNN to stay in cache.
BATCH = 64


class TorchEvaluator:
    """A `evaluator.Evaluator` for any loss and metric, on any device.

    Args:
      device: that training computes on.
    """

    def __init__(self, model: LocalModel, x: Array, y: Array, criteria: Criteria, *, device: str = "cpu") -> None:
        if not isinstance(model, FlatModel):
            raise InvalidValue("TorchEvaluator.model", "must be a FlatModel, a torch module", type(model).__name__)
        self._model, self._criteria = model, criteria
        self._home = model if device == "cpu" else Twin(model, device)
        self._x, self._y = tensor_of(x), tensor_of(y)
        if isinstance(self._home, Twin):
            self._x, self._y = self._x.to(self._home.device), self._y.to(self._home.device)

    def total(self, states: Array, samples: slice | Array) -> tuple[float, float]:
        index = torch.from_numpy(samples) if isinstance(samples, np.ndarray) else samples
        return evaluate(self._home, states, self._x[index], self._y[index], self._criteria)

    def outputs(self, states: Array, samples: slice | Array) -> Array:
        index = torch.from_numpy(samples) if isinstance(samples, np.ndarray) else samples
        return predict(self._home, states, self._x[index], self._criteria).cpu().numpy()

    def gradient(self, state: Array, samples: slice | Array) -> Array:
        model = self._model
        model.load(state)
        model.module.eval()
        model.gradient.zero_()
        index = torch.from_numpy(samples) if isinstance(samples, np.ndarray) else samples
        x, y = (in_precision(tensor[index].cpu(), model.state.dtype) for tensor in (self._x, self._y))
        self._criteria.loss.sum(model.module(x), y).backward()
        return model.gradient.numpy().astype(np.float64)


def predict(model: FlatModel | Twin, states: Array, x: torch.Tensor, criteria: Criteria) -> torch.Tensor:
    """Returns the models' mean prediction.  [num_samples, …]"""
    model.module.eval()
    dtype = model.state.dtype
    with torch.inference_mode():
        members = []
        for state in states:
            model.load(state)
            members.append([model.module(in_precision(inputs, dtype)) for inputs in x.split(BATCH)])
        return torch.cat([criteria.loss.combined(torch.stack(batch)) for batch in zip(*members, strict=True)])


def evaluate(
    model: FlatModel | Twin, states: Array, x: torch.Tensor, y: torch.Tensor, criteria: Criteria
) -> tuple[float, float]:
    """Returns (Σ of the loss, Σ of the metric) over the samples; of accuracy the number of correct predictions.

    Args:
      states: of the models that predict together.  [num_models, num_state]
    """
    return totals([predict(model, states, x, criteria)], in_precision(y, model.state.dtype), criteria)


def totals(parts: Sequence[torch.Tensor], targets: torch.Tensor, criteria: Criteria) -> tuple[float, float]:
    """The same of the models' outputs. A loss or metric without sums that add up gets all of them at once.

    Args:
      parts: outputs for the targets, in their order; each is added up by itself, as where it was computed alone.
    """
    outputs = torch.cat(list(parts))
    targets_of = targets.split([len(part) for part in parts])

    def total(measure: Loss | Metric) -> float:
        if measure.total is None:
            return float(measure.sum(outputs, targets))
        return sum(
            sum(float(measure.sum(*batch)) for batch in zip(part.split(BATCH), wanted.split(BATCH), strict=True))
            for part, wanted in zip(parts, targets_of, strict=True)
        )

    with torch.inference_mode():
        return total(criteria.loss), 0.0 if criteria.metric is None else total(criteria.metric)


def values_of_arrays(outputs: Array, targets: Array, metrics: Sequence[Metric], *, like: Array) -> dict[str, Any]:
    """Returns each metric of all samples at once, by its key: a number, or a list of a vector's."""
    y = in_precision(tensor_of(targets), tensor_of(like).dtype)
    found = {}
    with torch.inference_mode():
        for metric in metrics:
            value = torch.as_tensor(metric.mean(tensor_of(outputs), y)).to(torch.float64)
            found[key_of(metric)] = (
                value.item() if value.numel() == 1 and value.dim() == 0 else value.flatten().tolist()
            )
    return found


def totals_of_arrays(parts: Sequence[Array], targets: Array, criteria: Criteria, *, like: Array) -> tuple[float, float]:
    """`totals` of arrays; targets take the precision of the weights `like`."""
    return totals(
        [tensor_of(part) for part in parts], in_precision(tensor_of(targets), tensor_of(like).dtype), criteria
    )
