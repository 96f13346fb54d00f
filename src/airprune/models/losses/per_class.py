"""Defines accuracy and F1 of each class, and the mean F1 over classes.

Of C classes, as many as there are scores. A class without samples has no accuracy (NaN, recorded as none), and one that
is neither there nor predicted has no F1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airprune.models.losses.base import Metric

if TYPE_CHECKING:
    import torch


def _counts(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns correct predictions, samples and predictions of each class.  3 × [num_classes]"""
    num_classes, predicted = outputs.shape[1], outputs.argmax(1).flatten()
    wanted = targets.flatten()
    correct = predicted[predicted == wanted].bincount(minlength=num_classes)
    return correct.double(), wanted.bincount(minlength=num_classes).double(), predicted.bincount(
        minlength=num_classes
    ).double()  # fmt: skip


def class_accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the share of each class's samples that are classified correctly.  [num_classes]"""
    correct, samples, _ = _counts(outputs, targets)
    return correct / samples


def class_f1(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns 2 · correct / (samples + predictions) of each class, the harmonic mean of precision and recall."""
    correct, samples, predictions = _counts(outputs, targets)
    return 2.0 * correct / (samples + predictions)


def f1(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the mean of `class_f1` over the classes that have one."""
    return class_f1(outputs, targets).nanmean()


CLASS_ACCURACY = Metric(name="class-accuracy", summary="accuracy of each class", mean=class_accuracy, is_vector=True)
CLASS_F1 = Metric(name="class-f1", summary="F1 score of each class", mean=class_f1, is_vector=True)
F1 = Metric(name="f1", summary="mean of the classes' F1 scores", mean=f1)
