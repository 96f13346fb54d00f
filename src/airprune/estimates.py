"""Means over seeds and how far to trust them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Two-sided 95 % quantiles of Student's t by degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half-width of its 95 % interval; NaN for a single seed."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        count = len(values)
        mean = float(np.mean(values))
        if count < 2:
            return cls(mean, math.nan)
        return cls(mean, float(_t95(count - 1) * np.std(values, ddof=1) / math.sqrt(count)))


def _t95(freedom: int) -> float:
    """Beyond the table by the first terms of its expansion, right to a thousandth."""
    return _T95[freedom - 1] if freedom <= len(_T95) else 1.960 + 2.372 / freedom + 2.82 / freedom**2
