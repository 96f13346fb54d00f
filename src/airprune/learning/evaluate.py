"""Loss and metric of a model, or of several that predict together, on held-out samples."""

from __future__ import annotations

import numpy as np
import torch

from airprune.kernels.autograd import in_precision
from airprune.kernels.devices import Twin
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
