"""Rules that judge the arms of a claim: by accuracy, by the cost of the target, or by the cost of the whole run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from airprune.results.measures import MEASURES
from airprune.results.statistics import Estimate
from airprune.results.time_to_target import Costs, Ratio, target_text
from airprune.studies.claims import Judgement, combined
from airprune.studies.claims.intervals import (
    NOISE,
    judge_better,
    judge_no_worse,
    judge_ratio,
    judge_saving,
    judge_trend,
)
from airprune.studies.league.finished import FinishedRun
from airprune.studies.league.standings import TARGET_SHARE

Arms = Mapping[str, Mapping[int, FinishedRun]]
"""The runs of each arm by seed, the same seeds in all of them."""
Judge = Callable[[Arms], Judgement]
Values = Callable[[Mapping[int, FinishedRun]], np.ndarray]

_NOISE = NOISE["test_accuracy"]
_ACCURACY = MEASURES["test_accuracy"].label


def _accuracies(runs: Mapping[int, FinishedRun]) -> np.ndarray:
    return np.array([run.accuracy for run in runs.values()])


def _compared(judge: Callable[..., Judgement], names: tuple[str, str], values: Values, what: str) -> Judge:
    """Returns a rule that compares two arms by one value per seed."""
    return lambda arms: judge(*(values(arms[name]) for name in names), noise=_NOISE, what=what, names=names)


def better(first: str, second: str) -> Judge:
    """Holds if one arm's accuracy exceeds another's."""
    return _compared(judge_better, (first, second), _accuracies, _ACCURACY)


def no_worse(first: str, second: str) -> Judge:
    """Holds if one arm loses less accuracy to another than the noise of a seed."""
    return _compared(judge_no_worse, (first, second), _accuracies, _ACCURACY)


def trend(*levels: str, rising: bool) -> Judge:
    """Holds if accuracy rises, or falls, along the arms."""

    def judge(arms: Arms) -> Judgement:
        found = [_accuracies(arms[level]) for level in levels]
        return judge_trend(levels, found, rising=rising, noise=_NOISE, what=_ACCURACY)

    return judge


def cheaper(first: str, second: str, measure: str = "time_to_target_s") -> Judge:
    """Holds if one arm needs less of something to reach 95 % of the accuracy that the other ends with."""

    def judge(arms: Arms) -> Judgement:
        target = TARGET_SHARE * float(_accuracies(arms[second]).mean())
        mine, other = (
            Costs.of({seed: run.tests for seed, run in arms[name].items()}, target, measure) for name in (first, second)
        )
        ratio, heading = Ratio.of(mine, other), MEASURES[measure].heading
        numbers = {first: mine.text(measure), second: other.text(measure), "ratio": ratio.text}
        listed = "; ".join(f"{name} {numbers[name]}" for name in (first, second))
        sentence = f"{heading}, {target_text(round(target, 3))}: {listed}; ratio {ratio.text}"
        return judge_ratio(ratio, sentence, numbers)

    return judge


def spends_less(first: str, second: str, measure: str) -> Judge:
    """Holds if one arm's whole run takes less of something."""

    def judge(arms: Arms) -> Judgement:
        about = MEASURES[measure]
        mine, other = (
            np.array([getattr(run.tests[-1], measure) or math.nan for run in arms[name].values()])
            for name in (first, second)
        )
        saved = Estimate.of(list(1.0 - mine / other))
        numbers = {name: about.with_unit(float(v.mean())) for name, v in ((first, mine), (second, other))}
        numbers["saved"] = saved.text(".1f", scale=100.0) + " %"
        reason = f"{about.label}: {first} {numbers[first]}, {second} {numbers[second]}, saved {numbers['saved']}"
        return judge_saving(saved, reason, numbers)

    return judge


def faster_early(first: str, second: str) -> Judge:
    """Holds if one arm is more accurate after a third of the rounds."""

    def early(runs: Mapping[int, FinishedRun]) -> np.ndarray:
        return np.array([run.tests[len(run.tests) // 3].test_accuracy for run in runs.values()])

    return _compared(judge_better, (first, second), early, "accuracy after a third of the rounds")


def ahead_at_equal_time(first: str, second: str) -> Judge:
    """Holds if one arm is more accurate at the simulated second at which the first of the two has ended."""

    def judge(arms: Arms) -> Judgement:
        pairs = [(arms[first][seed], arms[second][seed]) for seed in arms[first]]
        ends_s = [min(run.tests[-1].time_s or math.inf for run in pair) for pair in pairs]
        mine, other = (
            np.array([pair[arm].accuracy_by(end_s) for pair, end_s in zip(pairs, ends_s, strict=True)])
            for arm in (0, 1)
        )
        return judge_better(mine, other, noise=_NOISE, what="accuracy at equal time", names=(first, second))

    return judge


def every(*judges: Judge) -> Judge:
    """Holds if all of these hold."""
    return lambda arms: combined([judge(arms) for judge in judges])


def same(first: str, second: str) -> Judge:
    """Holds if two arms differ in accuracy by no more than the noise of a seed."""
    return every(no_worse(first, second), no_worse(second, first))
