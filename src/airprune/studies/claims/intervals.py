"""Rules by which measured numbers decide a claim.

Runs differ by their seeds, so a claim about runs is decided by an interval over seeds. One seed has none, and such a
claim cannot be decided on it. Claims about planning alone need no seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from airprune.results.statistics import Estimate
from airprune.results.time_to_target import Ratio
from airprune.studies.claims import Judgement, Verdict
from airprune.studies.claims.agreement import page_p

# Differences below this are too small to matter.
NOISE = {"test_accuracy": 0.03, "test_loss": 0.08}
_SIGNIFICANT = 0.05
# Where there is no interval: medians of a ratio nearer to 1 than this are no difference.
_NEAR_ONE = 1.1
ONE_SEED = "one seed has no interval; give several, e.g. --seeds 0-4"


def is_significant(difference: Estimate) -> bool:
    """True if the 95 % interval excludes zero; never with a single seed, whose half-width is NaN."""
    return abs(difference.mean) > difference.half_width


def is_negligible(difference: Estimate, noise: float) -> bool:
    """True if the 95 % interval shows that any difference is below the noise; never with a single seed."""
    return abs(difference.mean) + difference.half_width < noise


def why_undecided(difference: Estimate, otherwise: str) -> str:
    """Returns the end of the reason of a claim that cannot be decided; `otherwise` if there are several seeds."""
    return ONE_SEED if math.isnan(difference.half_width) else otherwise


def judge_trend(
    levels: Sequence[str], by_level: Sequence[np.ndarray], *, rising: bool, noise: float, what: str
) -> Judgement:
    """Judges whether a measure rises (or falls) along ordered levels; arrays hold one value per seed, seeds aligned.

    A trend is there if the ends differ beyond their interval, or if the seeds agree on the order more than chance
    would have them (Page's test): they may differ widely in size and still agree in order. It holds if it has the
    claimed direction and no step goes the other way beyond noise, in part if a step does; it does not hold if the trend
    goes the other way or the ends differ by a negligible amount.
    """
    sign = 1.0 if rising else -1.0
    steps = [Estimate.of(list(sign * (b - a))) for a, b in itertools.pairwise(by_level)]
    whole = Estimate.of(list(sign * (by_level[-1] - by_level[0])))
    against = [f"{levels[i]} → {levels[i + 1]}" for i, s in enumerate(steps) if s.mean < 0 and is_significant(s)]
    numbers = {level: Estimate.of(list(values)).text(".4f") for level, values in zip(levels, by_level, strict=True)}
    ends = f"{what} from {levels[0]} to {levels[-1]}: {numbers[levels[0]]} → {numbers[levels[-1]]}"
    ranks = [_ranks(sign * values) for values in np.transpose(by_level)]
    order = float(np.mean([_rank_correlation(mine) for mine in ranks]))
    numbers["rank correlation"] = f"{order:.2f}"
    agree = len(ranks) > 1 and order * whole.mean > 0 and page_p(ranks) < _SIGNIFICANT
    is_trend = is_significant(whole) or agree
    if is_trend and whole.mean > 0:
        if not against:
            return Judgement(Verdict.HOLDS, f"{ends}; no step goes the other way beyond the noise.", numbers)
        return Judgement(Verdict.PARTLY, f"{ends}, but it goes the other way at {', '.join(against)}.", numbers)
    if is_trend:
        return Judgement(Verdict.FAILS, f"{ends}: it goes the other way.", numbers)
    if is_negligible(whole, noise):
        return Judgement(Verdict.FAILS, f"{ends}: no change above the noise.", numbers)
    return Judgement(Verdict.UNDECIDED, f"{ends}: {_too_close(whole)}.", numbers)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Returns ranks from 0; equal values share none because measured ones never are equal."""
    return np.argsort(np.argsort(values))


def _rank_correlation(ranks: np.ndarray) -> float:
    """Returns Spearman's rank correlation of a series with its own order."""
    return float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])


def judge_better(
    better: np.ndarray, worse: np.ndarray, *, noise: float, what: str, names: tuple[str, str]
) -> Judgement:
    """Judges whether the first mean exceeds the second beyond the interval of their difference."""
    difference, numbers, sentence = _compared(better, worse, what, names)
    if is_significant(difference):
        return Judgement(Verdict.of(difference.mean > 0), f"{sentence}.", numbers)
    if is_negligible(difference, noise):
        return Judgement(Verdict.FAILS, f"{sentence}: no difference above the noise.", numbers)
    return Judgement(Verdict.UNDECIDED, f"{sentence}: {_too_close(difference)}.", numbers)


def judge_no_worse(
    mine: np.ndarray, other: np.ndarray, *, noise: float, what: str, names: tuple[str, str]
) -> Judgement:
    """Judges whether the first mean is less than the noise below the second, by the interval of their difference."""
    difference, numbers, sentence = _compared(mine, other, what, names)
    if difference.mean - difference.half_width > -noise:
        return Judgement(Verdict.HOLDS, f"{sentence}.", numbers)
    if difference.mean + difference.half_width < -noise:
        return Judgement(Verdict.FAILS, f"{sentence}: more than {noise:g} is lost.", numbers)
    why = why_undecided(difference, "the interval decides neither way")
    return Judgement(Verdict.UNDECIDED, f"{sentence}: {why}.", numbers)


def _compared(
    first: np.ndarray, second: np.ndarray, what: str, names: tuple[str, str]
) -> tuple[Estimate, dict[str, Any], str]:
    """Returns (difference, numbers, sentence) of two series, seeds aligned."""
    difference = Estimate.of(list(first - second))
    numbers = {
        names[0]: Estimate.of(list(first)).text(".4f"),
        names[1]: Estimate.of(list(second)).text(".4f"),
        "difference": difference.text(".4f"),
    }
    return difference, numbers, f"{what}: {names[0]} {numbers[names[0]]}, {names[1]} {numbers[names[1]]}"


def judge_saving(saved: Estimate, sentence: str, numbers: dict[str, Any]) -> Judgement:
    """Judges whether something is saved beyond the interval; `sentence` says what was measured."""
    if is_significant(saved):
        return Judgement(Verdict.of(saved.mean > 0), f"{sentence}.", numbers)
    why = why_undecided(saved, "its interval contains 0")
    return Judgement(Verdict.UNDECIDED, f"{sentence}; {why}.", numbers)


def _too_close(difference: Estimate) -> str:
    within = f"the difference, {difference.text('.4f')}, is within its interval; more seeds would decide"
    return why_undecided(difference, within)


def judge_ratio(ratio: Ratio, sentence: str, numbers: dict[str, Any]) -> Judgement:
    """Judges whether a cost is lower than another one; `sentence` says what was measured.

    Decided by the interval; by the median where a seed is no pair; never by a single seed.

    A seed on which only the reference got there leaves it at holding in part.
    """
    if ratio.num_decided == 1:
        return Judgement(Verdict.UNDECIDED, f"{sentence}; {ONE_SEED}.", numbers)
    return Judgement(_ratio_verdict(ratio), f"{sentence}.", numbers)


def _ratio_verdict(ratio: Ratio) -> Verdict:
    middle = ratio.middle
    if math.isnan(middle):
        return Verdict.UNDECIDED
    low, high = ratio.interval or (middle / _NEAR_ONE, middle * _NEAR_ONE)
    if high < 1.0:
        return Verdict.PARTLY if math.inf in ratio.by_seed.values() else Verdict.HOLDS
    return Verdict.FAILS if low > 1.0 else Verdict.UNDECIDED
