"""What a device does to its update before anything of it leaves: clipping, and noise that nobody else can repeat."""

from __future__ import annotations

import os

import numpy as np

Array = np.ndarray


def clipped(update: Array, clip_norm: float) -> Array:
    """Δ min(1, C / ‖Δ‖): the very array if it is short enough; zero if it is not finite, as after diverged training.

    Whether training diverged is information about the data, so that must not show either.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sqrt(np.square(update).sum()))
    if norm <= clip_norm:
        return update
    return update * (clip_norm / norm) if np.isfinite(norm) else np.zeros_like(update)


def secret_normals(size: int) -> Array:
    """Standard normal numbers from the operating system's randomness, by Box and Muller.  [size]

    Numpy's generators are not made to withstand somebody who sees part of what they draw.
    """
    pairs = (size + 1) // 2
    whole = np.frombuffer(os.urandom(16 * pairs), dtype=np.uint64).reshape(2, pairs) >> np.uint64(11)
    radius = np.sqrt(-2.0 * np.log((whole[0] + 1.0) * 2.0**-53))  # of (0, 1]
    angle = 2.0 * np.pi * 2.0**-53 * whole[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]
