"""Samples as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from airprune.methods.augmentations.base import Augmentation

if TYPE_CHECKING:
    import torch


class Unchanged(Augmentation):
    """No augmentation; every kernel serves it."""

    name = "none"
    summary = "samples as they are"
    source = "the paper"

    def apply(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        return x
