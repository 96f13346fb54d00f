"""Checks by one dry pass before the first round that a model, its samples and its loss fit each other.

A mismatch is one sentence here, not a traceback in a worker.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from airprune.data import Dataset
from airprune.errors import InvalidValue
from airprune.models.kernels.autograd import in_precision
from airprune.models.losses import OWN
from airprune.models.losses.own import Criteria
from airprune.models.user_modules import MODEL, first_sentence

Array = np.ndarray

_MOST_SAMPLES = 4
_CHANNELS = (1, 3, 4)


def check_fit(module: nn.Module, data: Dataset, criteria: Criteria, num_samples: Array, *, batch_size: int) -> None:
    """Runs a forward and a backward pass of a few samples in training, and a forward pass in evaluation.

    Args:
      module: a copy, which is changed.
      num_samples: samples of each device; the smallest resulting minibatch is tried as well.
    """
    counts = np.unique(num_samples).tolist()
    sizes = {min(count, batch_size) for count in counts} | {count % batch_size for count in counts} - {0}
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), warnings.catch_warnings():
        # Torch broadcasts different shapes with a warning, which is an error here; other warnings are ignored.
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="Using a target size")
        usual = min(max(sizes), _MOST_SAMPLES)
        _train_on(module, data, criteria, usual)
        if min(sizes) < min(usual, 2):
            _train_on_one(module, data, criteria, counts, batch_size)
        module.eval()
        outputs = _outputs(module, data, usual)
        _scored(outputs, data, criteria, usual)


def _train_on(module: nn.Module, data: Dataset, criteria: Criteria, size: int) -> None:
    module.train()
    outputs = _outputs(module, data, size)
    if (
        data.num_classes
        and criteria.loss.targets in ("classes", "tokens")
        and not _fits_classes(tuple(outputs.shape), data)
    ):
        shape = ", ".join(["samples", str(data.num_classes), *map(str, data.train_y.shape[1:])])
        rule = f"must give scores of shape [{shape}], one for each class"
        way_out = "Its last layer has as many outputs as there are classes."
        raise InvalidValue(MODEL, rule, f"{tuple(outputs.shape)} for {size} samples", way_out)
    loss = _lost(outputs, data, criteria, size)
    try:
        loss.backward()
    except RuntimeError as error:
        way_out = "Parameters must reach the loss through torch's own operations."
        raise InvalidValue(MODEL, "must be a function of its parameters", first_sentence(error), way_out) from None


def _fits_classes(shape: tuple[int, ...], data: Dataset) -> bool:
    """True for [samples, classes], and [samples, classes, positions] where every position has a class."""
    return len(shape) > 1 and shape[1] >= data.num_classes and shape[2:] == data.train_y.shape[1:]


def _outputs(module: nn.Module, data: Dataset, size: int) -> torch.Tensor:
    dtype = next(module.parameters()).dtype
    x = in_precision(torch.from_numpy(data.train_x[:size].copy()), dtype)
    try:
        outputs = module(x)
    except Exception as error:  # whatever the module's own forward raises
        rule = f"must take minibatches of shape {[size, *data.feature_shape]} and type {data.train_x.dtype}"
        if data.fields:
            inputs = ", ".join(f"{one.name} {[size, *one.shape]}" for one in data.fields)
            rule = f"must take minibatches that are a dictionary of {inputs}"
        raise InvalidValue(MODEL, rule, first_sentence(error), _hint(data)) from None
    if not isinstance(outputs, torch.Tensor):
        way_out = (
            "Wrap it in a module that picks one, e.g. the last of an LSTM's outputs; `logits` are taken by themselves."
        )
        raise InvalidValue(MODEL, "must give one tensor", type(outputs).__name__, way_out)
    return outputs


def _lost(outputs: torch.Tensor, data: Dataset, criteria: Criteria, size: int) -> torch.Tensor:
    loss = _called("run.loss", criteria.loss.mean, outputs, data, size, criteria.loss.name)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise InvalidValue(
            "run.loss", "must give one number, the mean over the samples", got, 'Example: reduction="mean"'
        )
    return loss


def _scored(outputs: torch.Tensor, data: Dataset, criteria: Criteria, size: int) -> None:
    _score_further(outputs, data, criteria, size)
    if criteria.metric is None:
        return
    with torch.no_grad():
        score = _called("run.metric", criteria.metric.mean, outputs, data, size, criteria.metric.name)
    try:
        float(score)
    except (TypeError, ValueError, RuntimeError):
        way_out = "For a vector give a list of metrics, beside the loss's own: metric=[…]."
        raise InvalidValue("run.metric", "must give one number", type(score).__name__, way_out) from None


def _score_further(outputs: torch.Tensor, data: Dataset, criteria: Criteria, size: int) -> None:
    for metric in criteria.more:
        if metric.name == "accuracy":  # left out where outputs are no class scores
            continue
        with torch.no_grad():
            score = _called("run.metric", metric.mean, outputs, data, size, metric.name)
        try:
            torch.as_tensor(score).to(torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise InvalidValue("run.metric", "must give numbers", type(score).__name__) from None


def _called(owner: str, function: Any, outputs: torch.Tensor, data: Dataset, size: int, name: str) -> Any:
    y = in_precision(torch.from_numpy(data.train_y[:size].copy()), outputs.dtype)
    try:
        return function(outputs, y)
    except Exception as error:  # whatever a user's function raises
        shapes = (
            f"outputs {list(outputs.shape)} and targets {list(y.shape)} of type {str(y.dtype).removeprefix('torch.')}"
        )
        rule = f"({name.removeprefix(OWN)}) must take {shapes}"
        raise InvalidValue(owner, rule, first_sentence(error)) from None


def _train_on_one(module: nn.Module, data: Dataset, criteria: Criteria, counts: Sequence[int], batch_size: int) -> None:
    """Trains on one sample, which e.g. batch normalisation refuses, since it has nothing to average over."""
    try:
        _train_on(module, data, criteria, 1)
    except InvalidValue:
        lonely = next(count for count in counts if min(count, batch_size) == 1 or count % batch_size == 1)
        fits = (n for n in range(batch_size - 1, 1, -1) if all(min(c, n) > 1 and c % n != 1 for c in counts))
        better = next(fits, None)
        way_out = "Use more samples per device." if better is None else f"Example: train.batch_size = {better}"
        rule = f"must leave no minibatch of one sample, which the model cannot train on, of a device's {lonely}"
        raise InvalidValue("Scenario.train.batch_size", rule, batch_size, way_out) from None


def _hint(data: Dataset) -> str:
    """Returns the commonest reason for samples of this shape."""
    if data.train_x.dtype == np.int64:
        return 'Whole numbers stay whole, for Embedding layers; for others give x.astype("float32").'
    if len(data.feature_shape) == 3 and data.feature_shape[2] in _CHANNELS:
        return "Images are [channels, height, width]; bytes are turned so by themselves."
    return 'Layers of tokens need whole numbers, x.astype("int64"); others samples of the shape they were made for.'
