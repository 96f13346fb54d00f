"""The base class of weightings: how much a device counts in the objective of planning."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from airprune.components.component import Array, Component
from airprune.methods.selection.base import Candidates


class Weighting(Component):
    """One rule for c_n, the weight of a device's pruning ratio or progress in the objective of a scheme."""

    @abstractmethod
    def weights(self, selected: Candidates) -> Array | float:
        """Returns c_n > 0 of the selected devices; `selected.memory` has its slots.  [num_selected] or one for all"""


def over_their_mean(values: Array) -> Array:
    """Returns positive numbers over their mean, so that they weigh 1 on average.  [len(values)]"""
    return np.asarray(values / values.mean()) if len(values) else values
