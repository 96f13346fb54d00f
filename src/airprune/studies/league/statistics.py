"""Intervals, tests and ranks: pure functions of numbers. Seeds pair runs: all else about them is the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

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


@dataclass(frozen=True, kw_only=True)
class Rank:
    """The ranks that a method may have: it cannot be separated from the others in between."""

    best: int
    worst: int

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best}–{self.worst}"


def ranks(values: Mapping[str, BySeed]) -> dict[str, Rank | None]:
    """Returns each method's range of ranks, by simultaneous 95 % intervals of all paired differences.

    Its best rank is 1 + the number of methods that are better beyond the interval, its worst the number of methods
    minus those that are worse. So the order of the means is never turned round, and a method of which little is known
    has a wide range. None for all if there are no intervals, i.e. fewer than two seeds; None for one without a value.
    """
    known = {name: by_seed for name, by_seed in values.items() if by_seed}
    found: dict[str, Rank | None] = dict.fromkeys(values)
    if not known or max(map(len, known.values())) < 2:
        return found
    widths = half_widths(known)
    means = {name: float(np.mean(list(by_seed.values()))) for name, by_seed in known.items()}
    for name in known:
        gaps = {other: _shared_gap(known[name], known[other]) for other in known if other != name}
        better = sum(gap < -widths[name, other] for other, gap in gaps.items() if means[other] > means[name])
        worse = sum(gap > widths[name, other] for other, gap in gaps.items() if means[other] < means[name])
        found[name] = Rank(best=1 + better, worst=len(known) - worse)
    return found


def _shared_gap(mine: BySeed, other: BySeed) -> float:
    shared = [mine[seed] - other[seed] for seed in mine if seed in other]
    return float(np.mean(shared)) if shared else 0.0


# Methods whose variance over seeds is at most this many times the median share one variance.
_SIMILAR = 4.0
_LEVEL = 0.95


def half_widths(values: Mapping[str, BySeed]) -> dict[tuple[str, str], float]:
    """Returns half-widths of simultaneous 95 % intervals of the differences of all pairs of methods, paired by seed.

    With five seeds, four degrees of freedom, and thousands of pairs, a correction of single paired t-intervals for the
    number of pairs separates nothing, and five seeds have too few sign flips for a permutation test. But methods
    × seeds is a design of randomised blocks: methods of similar variance over seeds share one estimate, and Tukey's
    studentised range is exact for all of their pairs if that variance is equal. Where a pair's own variance of
    differences is larger, that one counts, which only widens. A pair with a method of another variance (more than four
    times the median), or without all seeds, has its own paired t-interval, corrected by Šidák for the number of such
    pairs. If there are both kinds, each has half of the 5 %.
    """
    most = max(map(len, values.values()))
    seeds = sorted(next(by_seed for by_seed in values.values() if len(by_seed) == most))
    whole = {name: np.array([by[seed] for seed in seeds]) for name, by in values.items() if all(s in by for s in seeds)}
    similar = _similar(whole)
    names = list(values)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    apart = [pair for pair in pairs if not set(pair) <= similar]
    level = (1.0 + _LEVEL) / 2.0 if apart and len(similar) > 1 else _LEVEL
    found: dict[tuple[str, str], float] = {}
    if len(similar) > 1:
        mean_sq, freedom = _residual(np.array([whole[name] for name in similar]))
        critical = studentised_range(level, len(similar), freedom)
        for a, b in (pair for pair in pairs if set(pair) <= similar):
            own = float(np.var(whole[a] - whole[b], ddof=1)) / 2.0
            found[a, b] = critical * math.sqrt(max(mean_sq, own) / len(seeds))
    for a, b in apart:
        gaps = [values[a][seed] - values[b][seed] for seed in values[a] if seed in values[b]]
        if len(gaps) < 2:
            found[a, b] = math.inf
            continue
        critical = student_quantile(level ** (1.0 / len(apart)), len(gaps) - 1)
        found[a, b] = critical * float(np.std(gaps, ddof=1)) / math.sqrt(len(gaps))
    return found | {(b, a): width for (a, b), width in found.items()}


def _similar(whole: Mapping[str, np.ndarray]) -> set[str]:
    """Returns the methods whose residual variance is not far above the median, and not far below it: 0 is no sample."""
    if not whole:
        return set()
    centred = {name: row - row.mean() for name, row in whole.items()}
    block = np.median(list(centred.values()), axis=0)
    variance = {name: float(np.var(row - block, ddof=1)) for name, row in centred.items()}
    if len(whole) < 5:  # the median of so few is one of them
        return set(whole)
    middle = float(np.median(list(variance.values())))
    return {name for name, value in variance.items() if value <= _SIMILAR * middle}


def _residual(rows: np.ndarray) -> tuple[float, int]:
    """Returns the residual mean square of methods × seeds, and its degrees of freedom."""
    num, count = rows.shape
    rest = rows - rows.mean(axis=1, keepdims=True) - rows.mean(axis=0) + rows.mean()
    freedom = (num - 1) * (count - 1)
    return float(np.sum(rest**2)) / freedom, freedom


def student_quantile(level: float, freedom: int) -> float:
    """Returns t with P(|T| ≤ t) = level, by bisection."""
    return _inverse(lambda t: 1.0 - student_p(t, freedom), level)


@cache
def studentised_range(level: float, count: int, freedom: int) -> float:
    """Returns q with P(range of `count` normal means / their estimated deviation ≤ q) = level, by quadrature."""
    z = np.linspace(-8.0, 8.0, 641)
    density = np.exp(-(z**2) / 2.0) / math.sqrt(2.0 * math.pi)
    below = _normal(z)
    # s = √(χ²_ν / ν), on a grid that holds nearly all of it.
    spread = 6.0 / math.sqrt(2.0 * freedom)
    s = np.linspace(max(1e-3, 1.0 - spread), 1.0 + max(spread, 1.5 if freedom < 4 else 0.0), 241)
    log_density = (freedom - 1) * np.log(s) - freedom * s**2 / 2.0
    weight = np.exp(log_density - log_density.max())
    weight /= np.trapezoid(weight, s)

    def probability(q: float) -> float:
        inner = [np.trapezoid(density * (below - _normal(z - q * one)) ** (count - 1), z) for one in s]
        return float(np.trapezoid(weight * count * np.array(inner), s))

    return _inverse(probability, level)


_ERF = np.vectorize(math.erf, otypes=[float])


def _normal(x: np.ndarray) -> np.ndarray:
    """Returns Φ(x)."""
    found: np.ndarray = (1.0 + _ERF(x / math.sqrt(2.0))) / 2.0
    return found


def _inverse(probability: Callable[[float], float], level: float) -> float:
    """Returns where a rising function of x > 0 passes the level, to a ten-thousandth."""
    low, high = 0.0, 1.0
    while probability(high) < level:
        low, high = high, 2.0 * high
        if high > 1e6:
            return math.inf
    while high - low > 1e-4 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if probability(middle) < level else (low, middle)
    return (low + high) / 2.0
