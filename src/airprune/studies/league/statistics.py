"""Intervals, tests and ranks: pure functions of numbers. Seeds pair runs: all else about them is the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from airprune.results.statistics import Estimate
from airprune.studies.claims.student import student_p

BySeed = Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class Gap:
    """One method's mean minus another's, over the seeds that both have.

    Attributes:
      difference: mean and 95 % interval of the paired differences.
      p: two-sided, of the paired t-test; NaN for a single seed.
      p_holm: the same corrected for the number of methods that were tested.
    """

    difference: Estimate
    p: float
    p_holm: float = math.nan


def gap(mine: BySeed, other: BySeed) -> Gap | None:
    """Returns the paired gap of two methods; None without a seed in common."""
    shared = [seed for seed in mine if seed in other]
    if not shared:
        return None
    differences = [mine[seed] - other[seed] for seed in shared]
    return Gap(difference=Estimate.of(differences), p=paired_p(differences))


def paired_p(differences: Sequence[float]) -> float:
    """Returns the two-sided p of the hypothesis that the mean difference is 0."""
    count = len(differences)
    if count < 2:
        return math.nan
    mean, deviation = float(np.mean(differences)), float(np.std(differences, ddof=1))
    if deviation == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    return student_p(mean / deviation * math.sqrt(count), count - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Applies Holm's correction: the i-th smallest of m times (m − i + 1), never below the one before it."""
    tested = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for place, i in enumerate(sorted(tested, key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(tested) - place) * p_values[i]))
        corrected[i] = largest
    return corrected


def ranks(values: Mapping[str, BySeed]) -> dict[str, int | None]:
    """Returns 1 + the number of methods that are better beyond the 95 % interval of the paired difference.

    Methods that cannot be separated share a rank. None for all if there are no intervals, i.e. fewer than two seeds. A
    method without a value ranks behind all that have one.
    """
    known = {name: by_seed for name, by_seed in values.items() if by_seed}
    if not known or max(map(len, known.values())) < 2:
        return dict.fromkeys(values)
    found: dict[str, int | None] = dict.fromkeys(values, 1 + len(known))
    for name, mine in known.items():
        found[name] = 1 + sum(_is_behind(mine, other) for other in known.values() if other is not mine)
    return found


def _is_behind(mine: BySeed, other: BySeed) -> bool:
    between = gap(mine, other)
    return between is not None and between.difference.mean < -between.difference.half_width
