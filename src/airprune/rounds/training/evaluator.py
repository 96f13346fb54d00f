"""Loss and metric of a model, or of several that predict together, on held-out samples."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from airprune.models.kernels import native
from airprune.models.layout import LocalModel
from airprune.models.losses import CROSS_ENTROPY
from airprune.models.losses.own import Criteria

Array = np.ndarray
Samples = slice | Array


class Evaluator(Protocol):
    """A model, and samples that it is evaluated on."""

    def total(self, states: Array, samples: Samples) -> tuple[float, float]:
        """Returns (Σ of the loss, Σ of the metric) over some samples; of accuracy the number of correct predictions.

        A loss or metric whose sums do not add up gets these samples at once; its value counts for each of them.

        Args:
          states: of the models that predict together.  [num_models, num_state]
        """

    def outputs(self, states: Array, samples: Samples) -> Array:
        """Returns the models' mean prediction.  [num_samples, …]"""

    def gradient(self, state: Array, samples: Samples) -> Array:
        """Σ of the loss gradients at a state over some samples.  [num_parameters]"""


def evaluator_for(model: LocalModel, x: Array, y: Array, criteria: Criteria, *, kernel: str, device: str) -> Evaluator:
    """Returns an evaluator that computes by the kernel that trains.

    Args:
      device: what it computes on.
    """
    by_kernel = criteria.loss.name == CROSS_ENTROPY and criteria.is_accuracy
    if by_kernel and kernel == "native" and not native.unsupported(model, x, y):
        return NativeEvaluator(model, x, y)
    from airprune.rounds.training.torch_evaluator import TorchEvaluator

    return TorchEvaluator(model, x, y, criteria, device=device)


class NativeEvaluator:
    """Cross-entropy and accuracy: scores from the native kernel in float32, the rest in float64."""

    def __init__(self, model: LocalModel, x: Array, y: Array) -> None:
        self._model, self._x, self._labels = model, x, y
        self._scores = native.NativeScores(model, x, y)

    @np.errstate(over="ignore", invalid="ignore")  # of a model that has diverged the loss is NaN
    def outputs(self, states: Array, samples: Samples) -> Array:
        members = []
        for state in states:
            self._model.load(state)
            members.append(self._scores(samples).astype(np.float64))
        if len(members) == 1:
            return members[0]
        logs = np.stack([member - _log_sum_exp(member)[:, np.newaxis] for member in members], axis=-1)
        return _log_sum_exp(logs) - math.log(len(members))

    @np.errstate(over="ignore", invalid="ignore")
    def total(self, states: Array, samples: Samples) -> tuple[float, float]:
        outputs, labels = self.outputs(states, samples), self._labels[samples]
        losses = _log_sum_exp(outputs) - outputs[np.arange(len(labels)), labels]
        return float(losses.sum()), int(np.count_nonzero(outputs.argmax(1) == labels))

    def gradient(self, state: Array, samples: Samples) -> Array:
        """Computes the gradient by torch, since it is torch's sum that records have."""
        from airprune.models.losses import LOSSES, METRICS
        from airprune.rounds.training.torch_evaluator import TorchEvaluator

        criteria = Criteria(LOSSES[CROSS_ENTROPY], METRICS["accuracy"])
        return TorchEvaluator(self._model, self._x, self._labels, criteria).gradient(state, samples)


def _log_sum_exp(values: Array) -> Array:
    """ln Σ exp over the last axis."""
    largest = values.max(-1)
    found: Array = largest + np.log(np.exp(values - largest[..., np.newaxis]).sum(-1))
    return found
