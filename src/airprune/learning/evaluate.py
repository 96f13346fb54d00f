"""Loss and accuracy of a model on held-out samples."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from airprune.models import FlatModel

# Small enough for the activations of the paper's CNN to stay in cache.
BATCH = 64


def evaluate(model: FlatModel, x: torch.Tensor, y: torch.Tensor) -> tuple[float, int]:
    """(Σ of cross-entropy, number of correct predictions) over the samples."""
    model.module.eval()
    loss, correct = 0.0, 0
    with torch.inference_mode():
        for inputs, labels in zip(x.split(BATCH), y.split(BATCH), strict=True):
            outputs = model.module(inputs.to(model.state.dtype))
            loss += float(F.cross_entropy(outputs, labels, reduction="sum"))
            correct += int((outputs.argmax(1) == labels).sum())
    return loss, correct
