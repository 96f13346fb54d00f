"""What a claim is and how measured numbers decide it. A verdict is computed, never typed.

Runs differ by their seeds, so a claim about runs is decided by an interval over seeds. One seed has none, and such a
claim cannot be decided on it. Claims about planning alone need no seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from airprune.results.statistics import Estimate
from airprune.results.tidy import Rows
from airprune.studies.paper.agreement import page_p

Tables = Mapping[str, Rows]
Judge = Callable[[Tables, str], "Judgement"]


class Verdict(StrEnum):
    HOLDS = "holds"
    PARTLY = "holds in part"
    FAILS = "does not hold"
    UNDECIDED = "cannot be decided"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A verdict, the numbers it rests on, and the reason in a sentence."""

    verdict: Verdict
    reason: str
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of the paper's evaluation (in our words), or one of our errata.

    Attributes:
      tables: the CSV files that decide it.
      judge: (tables, preset) → judgement; claims about planning alone ignore the preset.
      by_preset: whether it is judged once per preset.
    """

    name: str
    where: str
    text: str
    tables: tuple[str, ...]
    judge: Judge
    by_preset: bool = True


def claims_about(
    table: str, found: Mapping[str, tuple[str, str, Judge]], *, by_preset: bool = True
) -> tuple[Claim, ...]:
    """Claims that one table decides: name → (where the paper says so, what it says, how it is judged)."""
    return tuple(
        Claim(name=name, where=where, text=text, tables=(table,), judge=judge, by_preset=by_preset)
        for name, (where, text, judge) in found.items()
    )


# Differences below this are too small to matter.
NOISE = {"test_accuracy": 0.03, "test_loss": 0.08}
_SIGNIFICANT = 0.05
ONE_SEED = "one seed has no interval; give several, e.g. --seeds 0-4"


def is_significant(difference: Estimate) -> bool:
    """Whether the 95 % interval leaves out zero; never with a single seed, whose half-width is NaN."""
    return abs(difference.mean) > difference.half_width


def is_negligible(difference: Estimate, noise: float) -> bool:
    """Whether the 95 % interval shows that there is no difference worth the name; never with a single seed."""
    return abs(difference.mean) + difference.half_width < noise


def why_undecided(difference: Estimate, otherwise: str) -> str:
    """The end of the reason of a claim that cannot be decided; `otherwise` if there are several seeds."""
    return ONE_SEED if math.isnan(difference.half_width) else otherwise


def judge_trend(
    levels: Sequence[str], by_level: Sequence[np.ndarray], *, rising: bool, noise: float, what: str
) -> Judgement:
    """Whether a measure rises (or falls) along ordered levels; arrays hold one value per seed, seeds aligned.

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
            return Judgement(
                verdict=Verdict.HOLDS, reason=f"{ends}; no step goes the other way beyond the noise.", numbers=numbers
            )
        return Judgement(
            verdict=Verdict.PARTLY,
            reason=f"{ends}, but it goes the other way at {', '.join(against)}.",
            numbers=numbers,
        )
    if is_trend:
        return Judgement(verdict=Verdict.FAILS, reason=f"{ends}: it goes the other way.", numbers=numbers)
    if is_negligible(whole, noise):
        return Judgement(verdict=Verdict.FAILS, reason=f"{ends}: no change worth the name.", numbers=numbers)
    return Judgement(verdict=Verdict.UNDECIDED, reason=f"{ends}: {_too_close(whole)}.", numbers=numbers)


def _ranks(values: np.ndarray) -> np.ndarray:
    """From 0; equal values share none because measured ones never are equal."""
    return np.argsort(np.argsort(values))


def _rank_correlation(ranks: np.ndarray) -> float:
    """Spearman's, of a series against its own order."""
    return float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])


def judge_better(
    better: np.ndarray, worse: np.ndarray, *, noise: float, what: str, names: tuple[str, str]
) -> Judgement:
    """Whether the first mean exceeds the second beyond the interval of their difference."""
    difference = Estimate.of(list(better - worse))
    numbers = {
        names[0]: Estimate.of(list(better)).text(".4f"),
        names[1]: Estimate.of(list(worse)).text(".4f"),
        "difference": difference.text(".4f"),
    }
    sentence = f"{what}: {names[0]} {numbers[names[0]]}, {names[1]} {numbers[names[1]]}"
    if is_significant(difference):
        verdict = Verdict.HOLDS if difference.mean > 0 else Verdict.FAILS
        return Judgement(verdict=verdict, reason=f"{sentence}.", numbers=numbers)
    if is_negligible(difference, noise):
        return Judgement(verdict=Verdict.FAILS, reason=f"{sentence}: no difference worth the name.", numbers=numbers)
    return Judgement(verdict=Verdict.UNDECIDED, reason=f"{sentence}: {_too_close(difference)}.", numbers=numbers)


def _too_close(difference: Estimate) -> str:
    within = f"the difference, {difference.text('.4f')}, is within its interval; more seeds would tell"
    return why_undecided(difference, within)


def combined(parts: Sequence[Judgement]) -> Judgement:
    """Several statements in one sentence: all must hold for it to hold; some, to hold in part."""
    verdicts = [part.verdict for part in parts]
    if all(v is Verdict.HOLDS for v in verdicts):
        verdict = Verdict.HOLDS
    elif all(v is Verdict.FAILS for v in verdicts):
        verdict = Verdict.FAILS
    elif any(v in (Verdict.HOLDS, Verdict.PARTLY) for v in verdicts):
        verdict = Verdict.PARTLY
    else:
        verdict = Verdict.UNDECIDED if Verdict.UNDECIDED in verdicts else Verdict.FAILS
    numbers = {f"{i}: {key}": value for i, part in enumerate(parts, start=1) for key, value in part.numbers.items()}
    return Judgement(verdict=verdict, reason=" ".join(part.reason for part in parts), numbers=numbers)
