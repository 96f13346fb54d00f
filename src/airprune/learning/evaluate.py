"""Loss and metric of a model, or of several that predict together, on held-out samples."""

from __future__ import annotations

import math

import numpy as np
import torch

from airprune.kernels.autograd import in_precision
from airprune.kernels.devices import Twin
from airprune.kernels.native import NativeScores
from airprune.losses.own import Judged
from airprune.models import FlatModel

# Small enough for the activations of the paper's CNN to stay in cache.
BATCH = 64


def evaluate(
    model: FlatModel | Twin, states: np.ndarray, x: torch.Tensor, y: torch.Tensor, judged: Judged
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


@np.errstate(over="ignore", invalid="ignore")  # of a model that has diverged the loss is NaN
def evaluate_natively(
    model: FlatModel, scores: NativeScores, states: np.ndarray, samples: slice | np.ndarray, labels: np.ndarray
) -> tuple[float, int]:
    """As `evaluate`, the scores from the native kernel in float32 and the rest in float64."""
    members = []
    for state in states:
        model.load(state)
        members.append(scores(samples).astype(np.float64))
    outputs = members[0]
    if len(members) > 1:
        logs = np.stack([member - _log_sum_exp(member)[:, np.newaxis] for member in members], axis=-1)
        outputs = _log_sum_exp(logs) - math.log(len(members))
    losses = _log_sum_exp(outputs) - outputs[np.arange(len(labels)), labels]
    return float(losses.sum()), int(np.count_nonzero(outputs.argmax(1) == labels))


def _log_sum_exp(values: np.ndarray) -> np.ndarray:
    """ln Σ exp over the last axis."""
    largest = values.max(-1)
    return largest + np.log(np.exp(values - largest[..., np.newaxis]).sum(-1))
