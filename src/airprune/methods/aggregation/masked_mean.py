"""The paper's average: each weight over the children that kept it, Eq. (12); at the cloud over all, Eq. (13)."""

from __future__ import annotations

from airprune.methods.aggregation.base import Aggregation, Array
from airprune.methods.aggregation.masked_sum import MaskedSum


class MaskedMean(Aggregation):
    """The mean over the children that sent a weight."""

    name = "masked-mean"
    summary = "mean of each weight over the children that sent it, unweighted"
    source = "the paper, Eqs. (12) and (13)"

    def finish(self, total: MaskedSum, previous: Array) -> Array:
        return total.mean(previous)
