"""Rules that judge the arms of a claim: by accuracy, by the cost of the target, or by the cost of the whole run.

Every rule is sequential: it is decided at 5, 10 or 20 seeds, by `claims.decision`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from airprune.results.measures import MEASURES
from airprune.results.time_to_target import Costs, Ratio, target_text
from airprune.studies.claims import Judgement, combined
from airprune.studies.claims.decision import DELTA, SEQUENTIAL, Aim
from airprune.studies.claims.intervals import judge_difference, judge_ratio, judge_saving, judge_trend
from airprune.studies.league.finished import FinishedRun
from airprune.studies.league.standings import TARGET_SHARE

Arms = Mapping[str, Mapping[int, FinishedRun]]
"""The runs of each arm by seed, the same seeds in the same order in all of them."""
Judge = Callable[[Arms], Judgement]
Values = Callable[[Mapping[int, FinishedRun]], np.ndarray]

_POINTS = DELTA["test_accuracy"]
_ACCURACY = MEASURES["test_accuracy"].label


def _accuracies(runs: Mapping[int, FinishedRun]) -> np.ndarray:
    return np.array([run.accuracy for run in runs.values()])


def _compared(aim: Aim, names: tuple[str, str], values: Values, what: str) -> Judge:
    """Returns a rule that compares two arms by one value per seed."""

    def judge(arms: Arms) -> Judgement:
        first, second = (values(arms[name]) for name in names)
        return judge_difference(first, second, aim=aim, delta=_POINTS, what=what, names=names, looks=SEQUENTIAL)

    return judge


def better(first: str, second: str, *, much: bool = False) -> Judge:
    """Holds if one arm's accuracy exceeds another's; `much`: by at least three points."""
    return _compared(Aim.MUCH_BETTER if much else Aim.BETTER, (first, second), _accuracies, _ACCURACY)


def no_worse(first: str, second: str) -> Judge:
    """Holds if one arm loses less than three points to another."""
    return _compared(Aim.NO_WORSE, (first, second), _accuracies, _ACCURACY)


def same(first: str, second: str) -> Judge:
    """Holds if two arms differ by less than three points."""
    return _compared(Aim.SAME, (first, second), _accuracies, _ACCURACY)


def trend(*levels: str, rising: bool) -> Judge:
    """Holds if accuracy rises, or falls, along the arms."""

    def judge(arms: Arms) -> Judgement:
        found = [_accuracies(arms[level]) for level in levels]
        return judge_trend(levels, found, rising=rising, delta=_POINTS, what=_ACCURACY, looks=SEQUENTIAL)

    return judge


def cheaper(first: str, second: str, measure: str = "time_to_target_s", *, much: bool = False) -> Judge:
    """Holds if one arm needs less of something to reach 95 % of the accuracy that the other ends with.

    The target is taken from the seeds of the first look, so that later seeds do not move it.
    """

    def judge(arms: Arms) -> Judgement:
        target = TARGET_SHARE * float(_accuracies(arms[second])[: SEQUENTIAL.at[0]].mean())
        mine, other = (
            Costs.of({seed: run.tests for seed, run in arms[name].items()}, target, measure) for name in (first, second)
        )
        numbers = {first: mine.text(measure), second: other.text(measure)}
        listed = "; ".join(f"{name} {numbers[name]}" for name in (first, second))
        sentence = f"{MEASURES[measure].heading}, {target_text(round(target, 3))}: {listed}"
        return judge_ratio(Ratio.of(mine, other), sentence, numbers, much=much, looks=SEQUENTIAL)

    return judge


def spends_less(first: str, second: str, measure: str, *, much: bool = False) -> Judge:
    """Holds if one arm's whole run takes less of something."""

    def judge(arms: Arms) -> Judgement:
        about = MEASURES[measure]
        mine, other = (
            np.array([getattr(run.tests[-1], measure) or math.nan for run in arms[name].values()])
            for name in (first, second)
        )
        numbers = {name: about.with_unit(float(v.mean())) for name, v in ((first, mine), (second, other))}
        listed = ", ".join(f"{name} {numbers[name]}" for name in (first, second))
        logs = np.log(mine / other).tolist()
        return judge_saving(logs, f"{about.label}: {listed}", numbers, much=much, looks=SEQUENTIAL)

    return judge


def faster_early(first: str, second: str) -> Judge:
    """Holds if one arm is more accurate after a third of the rounds."""

    def early(runs: Mapping[int, FinishedRun]) -> np.ndarray:
        return np.array([run.tests[max(0, len(run.tests) // 3 - 1)].test_accuracy for run in runs.values()])

    return _compared(Aim.BETTER, (first, second), early, "accuracy after a third of the rounds")


def ahead_at_equal_time(first: str, second: str) -> Judge:
    """Holds if one arm is more accurate at the simulated second at which the first of the two has ended."""

    def judge(arms: Arms) -> Judgement:
        pairs = [(arms[first][seed], arms[second][seed]) for seed in arms[first]]
        ends_s = [min(run.tests[-1].time_s or math.inf for run in pair) for pair in pairs]
        mine, other = (
            np.array([pair[arm].accuracy_by(end_s) for pair, end_s in zip(pairs, ends_s, strict=True)])
            for arm in (0, 1)
        )
        return judge_difference(
            mine,
            other,
            aim=Aim.BETTER,
            delta=_POINTS,
            what="accuracy at equal time",
            names=(first, second),
            looks=SEQUENTIAL,
        )

    return judge


def every(*judges: Judge) -> Judge:
    """Holds if all of these hold."""
    return lambda arms: combined([judge(arms) for judge in judges])
