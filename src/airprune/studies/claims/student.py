"""Student's t distribution for whole degrees of freedom, exact up to rounding."""

from __future__ import annotations

import math
from functools import cache


def student_p(t: float, freedom: int) -> float:
    """Returns P(|T| > |t|) for whole degrees of freedom, a series in θ = arctan(t / √ν) (Abramowitz, Stegun 26.7)."""
    theta = math.atan2(abs(t), math.sqrt(freedom))
    cos_sq, is_odd = math.cos(theta) ** 2, freedom % 2 == 1
    term = math.cos(theta) if is_odd else 1.0
    total = 0.0 if freedom == 1 else term
    for k in range(3 if is_odd else 2, freedom - 1, 2):
        term *= cos_sq * (k - 1) / k
        total += term
    inside = (theta + math.sin(theta) * total) * 2.0 / math.pi if is_odd else math.sin(theta) * total
    return max(0.0, 1.0 - inside)


@cache
def student_t(level: float, freedom: int) -> float:
    """Returns the t with P(|T| ≤ t) = level, by bisection."""
    low, high = 0.0, 1.0
    while student_p(high, freedom) > 1.0 - level:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if student_p(middle, freedom) > 1.0 - level else (low, middle)
    return (low + high) / 2.0
