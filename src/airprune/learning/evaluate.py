"""Loss and accuracy of a model, or of several that predict together, on held-out samples."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn import functional as F

from airprune.kernels.native import NativeScores
from airprune.models import FlatModel

# Small enough for the activations of the paper's CNN to stay in cache.
BATCH = 64


def evaluate(model: FlatModel, states: np.ndarray, x: torch.Tensor, y: torch.Tensor) -> tuple[float, int]:
    """(Σ of cross-entropy, number of correct predictions) over the samples.

    Args:
      states: of the models that predict together.  [num_models, num_state]
    """
    model.module.eval()
    loss, correct = 0.0, 0
    with torch.inference_mode():
        members = []
        for state in states:
            model.load(state)
            members.append([model.module(inputs.to(model.state.dtype)) for inputs in x.split(BATCH)])
        for labels, *outputs_of in zip(y.split(BATCH), *members, strict=True):
            outputs = together(torch.stack(outputs_of))
            loss += float(F.cross_entropy(outputs, labels, reduction="sum"))
            correct += int((outputs.argmax(1) == labels).sum())
    return loss, correct


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


def together(outputs: torch.Tensor) -> torch.Tensor:
    """Logits of the mean of the members' probabilities; a single member's stay as they are.

    Args:
      outputs: logits.  [num_models, num_samples, num_classes]
    """
    if len(outputs) == 1:
        return outputs[0]
    return outputs.log_softmax(-1).logsumexp(0) - math.log(len(outputs))
