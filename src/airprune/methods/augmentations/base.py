"""The base class of augmentations: samples of a minibatch, changed at random before the forward pass of a step."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from airprune.components.component import Component

if TYPE_CHECKING:
    import torch


class Augmentation(Component):
    """One augmentation. Probes of maskings and evaluations see the samples as they are."""

    @abstractmethod
    def apply(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Returns the samples of a minibatch as the step sees them, of the same shape; `x` itself stays as it is.

        Args:
          x: [num_samples, …]
          rng: a stream of the device and the edge round; the only source of randomness.
        """
