"""Counts the gradients in a device's update."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def gradients_in_update(optimizer: str, momentum: float, num_steps: Array | int) -> Array:
    """‖a‖₁: the sum of the factors with which the gradients of so many steps enter an update, over −η.

        (τ − m (1 − m^τ) / (1 − m)) / (1 − m),   without momentum τ

    Updates of other optimisers are not linear in gradients: their steps are counted.
    """
    steps = np.asarray(num_steps, dtype=np.float64)
    if optimizer != "sgd" or not momentum:
        return steps
    return (steps - momentum * (1.0 - momentum**steps) / (1.0 - momentum)) / (1.0 - momentum)
