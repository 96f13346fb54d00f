"""Judgements of measured numbers: differences of a mean, savings of a cost, trends over levels.

Runs differ by their seeds, so a claim about runs is decided by an interval over seeds. One seed has none, and such a
claim cannot be decided on it. Claims about planning alone need no seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from airprune.results.statistics import Estimate
from airprune.results.time_to_target import Ratio
from airprune.studies.claims import Judgement, Verdict
from airprune.studies.claims.agreement import page_p
from airprune.studies.claims.decision import (
    DELTA,
    ONE_LOOK,
    Aim,
    Decision,
    Looks,
    decide,
    interval_of,
    look_at,
    undecided,
)
from airprune.text import counted, number

ONE_SEED = "one seed has no interval; give several, e.g. --seeds 0-4"


def points_text(differences: np.ndarray) -> str:
    """Returns a mean difference of accuracies in points with half of its 95 % interval: +1.2 ± 0.4."""
    found = Estimate.of(list(100.0 * differences))
    return f"{found.mean:+.1f}" + ("" if math.isnan(found.half_width) else f" ± {found.half_width:.1f}")


def judge_difference(
    first: np.ndarray,
    second: np.ndarray,
    *,
    aim: Aim,
    delta: float,
    what: str,
    names: tuple[str, str],
    looks: Looks = ONE_LOOK,
) -> Judgement:
    """Judges the relation of two means, seeds aligned; larger is better."""
    decision = decide(list(first - second), aim, delta=delta, looks=looks)
    first, second = first[: decision.seeds], second[: decision.seeds]
    numbers = {name: Estimate.of(list(v)).text(".4f") for name, v in zip(names, (first, second), strict=True)}
    numbers["difference"] = f"{decision.effect:+.4f}{_interval_text(decision, '+.4f')}"
    listed = ", ".join(f"{name} {numbers[name]}" for name in names)
    sentence = f"{what}: {listed}, difference {numbers['difference']}"
    return Judgement(decision.verdict, f"{sentence}{_ending(decision, aim, f'{delta:g}')}", numbers, decision)


def _interval_text(decision: Decision, form: str, scale: float = 1.0) -> str:
    if math.isinf(decision.low) and math.isinf(decision.high):
        return ""
    return f" ({number(decision.low, form, scale=scale)} … {number(decision.high, form, scale=scale)})"


def _ending(decision: Decision, aim: Aim, delta: str) -> str:
    """Returns the end of a reason: the number of seeds and, where it is not plain, why."""
    seeds, verdict = counted(decision.seeds, "seed"), decision.verdict
    if verdict is Verdict.HOLDS:
        is_small = aim is Aim.BETTER and decision.high < decision.delta
        return f"; {seeds}{f'; less than the {delta} that matters' if is_small else ''}."
    if verdict is Verdict.SAME:
        return f"; {seeds}: no difference larger than δ = {delta}."
    if verdict is Verdict.FAILS:
        why = {
            Aim.NO_WORSE: f"more than {delta} is lost",
            Aim.SAME: f"the difference is larger than {delta}",
            Aim.MUCH_BETTER: f"the gain is smaller than {delta}",
        }.get(aim, "it goes the other way")
        return f"; {seeds}: {'it goes the other way' if decision.high < 0.0 and aim is not Aim.SAME else why}."
    return f"; {seeds}: {why_undecided(decision)}."


def why_undecided(decision: Decision) -> str:
    """Returns the reason of a claim that cannot be decided, and the number of seeds that it would take."""
    if decision.seeds < 2:
        return ONE_SEED
    if decision.seeds_needed is None:
        return "the interval decides neither way"
    if decision.seeds_needed <= decision.seeds:
        return "more seeds may decide"
    return f"the interval decides neither way; about {decision.seeds_needed:,} seeds would"


def judge_better(
    better: np.ndarray,
    worse: np.ndarray,
    *,
    delta: float,
    what: str,
    names: tuple[str, str],
    much: bool = False,
    looks: Looks = ONE_LOOK,
) -> Judgement:
    """Judges whether the first mean exceeds the second beyond the interval of their difference; `much`: by δ."""
    aim = Aim.MUCH_BETTER if much else Aim.BETTER
    return judge_difference(better, worse, aim=aim, delta=delta, what=what, names=names, looks=looks)


def judge_no_worse(
    mine: np.ndarray,
    other: np.ndarray,
    *,
    delta: float,
    what: str,
    names: tuple[str, str],
    looks: Looks = ONE_LOOK,
) -> Judgement:
    """Judges whether the interval of the difference excludes a loss of δ."""
    return judge_difference(mine, other, aim=Aim.NO_WORSE, delta=delta, what=what, names=names, looks=looks)


def judge_saving(
    log_ratio: Sequence[float],
    sentence: str,
    numbers: Mapping[str, Any],
    *,
    much: bool = False,
    delta: float = DELTA["cost"],
    looks: Looks = ONE_LOOK,
) -> Judgement:
    """Judges whether a cost is lower than another one, from log(cost / other cost) of each seed.

    −∞ where only this one has a finite cost, ∞ where only the other has. Effects are shown as the share that is saved.
    `sentence` says what was measured.
    """
    aim = Aim.MUCH_BETTER if much else Aim.BETTER
    found = decide([-value for value in log_ratio], aim, delta=-math.log1p(-delta), looks=looks)
    decision = found.scaled(lambda value: -math.expm1(-value), "share saved")
    interval = _interval_text(decision, ".1f", 100.0) if math.isfinite(found.low) or math.isfinite(found.high) else ""
    saved = number(decision.effect, ".1f", " %", scale=100.0) + interval
    reason = f"{sentence}; saved {saved}{_ending(decision, aim, f'{delta:.0%}')}"
    return Judgement(decision.verdict, reason, {**numbers, "saved": saved}, decision)


def judge_ratio(
    ratio: Ratio, sentence: str, numbers: Mapping[str, Any], *, much: bool = False, looks: Looks = ONE_LOOK
) -> Judgement:
    """Judges whether a cost of a target is lower than another one. A seed on which neither reached it is a tie."""
    if ratio.num_decided == 0:
        nothing = undecided(len(ratio.by_seed), delta=DELTA["cost"], unit="share saved")
        return Judgement(Verdict.UNDECIDED, f"{sentence}: neither reaches the target.", dict(numbers), nothing)
    logs = [0.0 if math.isnan(value) else _log(value) for value in ratio.by_seed.values()]
    return judge_saving(logs, sentence, numbers, much=much, looks=looks)


def _log(ratio: float) -> float:
    return -math.inf if ratio == 0.0 else math.log(ratio)


def judge_trend(
    levels: Sequence[str],
    by_level: Sequence[np.ndarray],
    *,
    rising: bool,
    delta: float,
    what: str,
    looks: Looks = ONE_LOOK,
    unit: str = "accuracy",
) -> Judgement:
    """Judges whether a measure rises (or falls) along ordered levels; arrays hold one value per seed, seeds aligned.

    A trend is there if the seeds agree on the order of three or more levels more than chance would have them (Page's
    test): they may differ widely in size and still agree in order. Of two levels, the interval of their difference
    decides. A trend holds if it has the claimed direction and no step goes the other way beyond its interval, in part
    if a step does. Its effect is the difference of the ends.
    """
    if len(levels) == 2:
        aligned = list(reversed(by_level)) if rising else list(by_level)
        names = (levels[1], levels[0]) if rising else (levels[0], levels[1])
        return judge_better(*aligned, delta=delta, what=what, names=names, looks=looks)
    found = None
    for count in looks.within(len(by_level[0])):
        found = _trend_look(levels, [values[:count] for values in by_level], rising, delta, what, looks)
        if found.verdict is not Verdict.UNDECIDED:
            break
    assert found is not None and found.decision is not None
    return replace(found, decision=replace(found.decision, unit=unit))


def _trend_look(
    levels: Sequence[str], by_level: Sequence[np.ndarray], rising: bool, delta: float, what: str, looks: Looks
) -> Judgement:
    sign, count = (1.0 if rising else -1.0), len(by_level[0])
    ends = sign * (by_level[-1] - by_level[0])
    decision = look_at(list(ends), Aim.BETTER, delta=delta, looks=looks)
    numbers = {level: Estimate.of(list(values)).text(".4f") for level, values in zip(levels, by_level, strict=True)}
    first, last = levels[0], levels[-1]
    said = f"{what} from {first} to {last}: {numbers[first]} → {numbers[last]}; {counted(count, 'seed')}"
    ranks = [np.argsort(np.argsort(sign * values)) for values in np.transpose(by_level)]
    order = float(np.mean([np.corrcoef(mine, np.arange(len(mine)))[0, 1] for mine in ranks]))
    numbers["rank correlation"] = f"{order:.2f}"
    is_trend = looks.decides(count) and order * decision.effect > 0 and page_p(ranks) < 1.0 - looks.level
    if not is_trend:
        if looks.decides(count) and -delta < decision.low and decision.high < delta:
            return _of(Verdict.SAME, f"{said}: no change larger than δ = {delta:g}.", numbers, decision)
        return _of(Verdict.UNDECIDED, f"{said}: {why_undecided(decision)}.", numbers, decision)
    if decision.effect < 0:
        return _of(Verdict.FAILS, f"{said}: it goes the other way.", numbers, decision)
    against = [f"{a} → {b}" for (a, x), (b, y) in _steps(levels, by_level) if _goes_back(sign * (y - x), looks.level)]
    if against:
        return _of(Verdict.PARTLY, f"{said}, but it goes the other way at {', '.join(against)}.", numbers, decision)
    return _of(Verdict.HOLDS, f"{said}: no step goes the other way beyond its interval.", numbers, decision)


def _of(verdict: Verdict, reason: str, numbers: dict[str, Any], decision: Decision) -> Judgement:
    needed = decision.seeds_needed if verdict is Verdict.UNDECIDED else None
    return Judgement(verdict, reason, numbers, replace(decision, verdict=verdict, seeds_needed=needed))


def _steps(levels: Sequence[str], by_level: Sequence[np.ndarray]) -> list[tuple[tuple[str, Any], tuple[str, Any]]]:
    return list(itertools.pairwise(zip(levels, by_level, strict=True)))


def _goes_back(step: np.ndarray, level: float) -> bool:
    _, _, high = interval_of(step, level)
    return high < 0.0
