"""The base class of partitions, and what one is given. Data sets are in `entry`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from airprune.checks import FloatArray
from airprune.components.component import Listed
from airprune.data.holdings import IntArray
from airprune.randomness import rng_for


@dataclass(frozen=True)
class PartitionTask:
    """The samples and devices of a partition, checked; classes and edges are counted from 0 without gaps.

    Attributes:
      class_of: class of each sample.  [num_samples]
      edge_of: edge of each device.  [num_devices]
      sizes: wanted number of samples of each device, real, summing to the samples.  [num_devices]
      classes_per_device, alpha: of `[data]`.
    """

    class_of: IntArray
    num_classes: int
    edge_of: IntArray
    sizes: FloatArray
    seed: int
    classes_per_device: int
    alpha: float

    @property
    def num_devices(self) -> int:
        return len(self.edge_of)

    def rng(self, *key: int) -> np.random.Generator:
        """Returns a random stream of the run's seed for partitions of your own."""
        return rng_for(self.seed, "partition-own", *key)


@dataclass(frozen=True, kw_only=True)
class Partition(Listed):
    """A way to partition the training samples among the devices.

    Attributes:
      assign: returns the device of each sample, -1 for samples that are not used; None for natural, which is by owner.
        [num_samples]
      by_class: whether samples must have a class each.
    """

    assign: Callable[[PartitionTask], IntArray] | None
    by_class: bool = True
