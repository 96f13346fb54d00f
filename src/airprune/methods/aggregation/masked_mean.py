"""The paper's average: each weight over the children that kept it, Eq. (12); at the cloud over all, Eq. (13)."""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.methods.aggregation.base import Aggregation
from airprune.methods.aggregation.masked_sum import MaskedSum

Array = np.ndarray


def finish(options: Any, total: MaskedSum, previous: Array) -> Array:
    return total.mean(previous)


AGGREGATION = Aggregation(
    name="masked-mean",
    summary="each weight averaged over the children that sent it, who count alike",
    source="the paper, Eqs. (12) and (13)",
    finish=finish,
)
