"""Fairness of a metric over devices: spread, worst tenth, Jain's index."""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray


def fairness(values: Array, *, smaller_is_better: bool = False) -> dict[str, float]:
    """Returns figures over the devices that have a value.

    mean; std, the standard deviation over devices; worst_tenth, the mean of the ⌈N / 10⌉ worst; jain, Jain's index
    (Σ x)² / (N Σ x²), which is 1 if all are equal and 1 / N if one device has all.

    Args:
      values: NaN for devices without a value.  [num_devices]
    """
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return {}
    worst = known[::-1] if smaller_is_better else known
    squares = float(np.square(known).sum())
    return {
        "mean": float(known.mean()),
        "std": float(known.std()),
        "worst_tenth": float(worst[: math.ceil(len(known) / 10)].mean()),
        "jain": float(known.sum()) ** 2 / (len(known) * squares) if squares else 1.0,
    }


def smaller_is_better(metric: str) -> bool:
    """True for metrics named …loss, …error or mae."""
    return metric.endswith(("loss", "error", "mae"))
