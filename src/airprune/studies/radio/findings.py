"""The findings that are judged on every rung: the paper's, and those of the league's best methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from airprune.results.time_to_target import Costs, Ratio
from airprune.studies.claims import Claim, Judgement, Verdict
from airprune.studies.claims.decision import DELTA
from airprune.studies.claims.intervals import judge_better, judge_no_worse, judge_ratio
from airprune.studies.radio.rungs import DROPPING, FAIR, PAPERS, WHOLE
from airprune.studies.radio.study import ArmResult

# The target is this share of what no pruning ends with, as in the league.
TARGET_SHARE = 0.95

Arms = Mapping[str, Mapping[int, ArmResult]]
"""The results of one rung, by method and seed."""


@dataclass(frozen=True, kw_only=True)
class Finding(Claim[[Arms, float]]):
    """A claim that is judged from (results of a rung, target accuracy).

    Attributes:
      short: heading of its column.
      methods: the two that it compares.
    """

    short: str
    methods: tuple[str, str]

    def judgement(self, arms: Arms, target: float) -> Judgement:
        """Returns the judgement on the seeds that both methods have; without any, it cannot be decided."""
        seeds = seeds_of(arms, self.methods)
        if not seeds:
            return Judgement(Verdict.UNDECIDED, "not run on this rung.")
        mine = {name: {seed: arms[name][seed] for seed in seeds} for name in self.methods}
        return replace(self.judge(mine, target), tuned=True)


def by_method(results: Iterable[ArmResult], rung: str) -> dict[str, dict[int, ArmResult]]:
    """Returns the results of a rung."""
    found: dict[str, dict[int, ArmResult]] = {}
    for one in results:
        if one.rung == rung:
            found.setdefault(one.method, {})[one.seed] = one
    return found


def seeds_of(arms: Arms, methods: Sequence[str]) -> list[int]:
    """Returns the seeds that all these methods have."""
    return sorted(set.intersection(*(set(arms.get(name, {})) for name in methods)))


def target_of(results: Iterable[ArmResult]) -> float:
    """Returns the accuracy that counts as reached: 95 % of what no pruning ends with on the paper's radio."""
    ends = [one.accuracy[-1] for one in by_method(results, "paper")[WHOLE].values()]
    return TARGET_SHARE * float(np.mean(ends))


def time_to_target_s(one: ArmResult, target: float) -> float:
    """Returns the time of the first global model with that accuracy; ∞ if there is none."""
    reached = (time_s for time_s, accuracy in zip(one.time_s, one.accuracy, strict=True) if accuracy >= target)
    return next(reached, math.inf)


def costs(arms: Mapping[int, ArmResult], target: float) -> Costs:
    """Returns the times to the target by seed."""
    return Costs({seed: time_to_target_s(one, target) for seed, one in arms.items()})


def _ends(arms: Mapping[int, ArmResult]) -> np.ndarray:
    return np.array([one.accuracy[-1] for one in arms.values()])


def _accuracy(first: str, second: str, judge: Callable[..., Judgement]) -> Callable[[Arms, float], Judgement]:
    def judged(arms: Arms, target: float) -> Judgement:
        return judge(
            _ends(arms[first]),
            _ends(arms[second]),
            delta=DELTA["test_accuracy"],
            what="accuracy",
            names=(first, second),
        )

    return judged


def _sooner(first: str, second: str) -> Callable[[Arms, float], Judgement]:
    def judged(arms: Arms, target: float) -> Judgement:
        this, other = costs(arms[first], target), costs(arms[second], target)
        numbers = {first: this.text("time_to_target_s"), second: other.text("time_to_target_s")}
        sentence = f"time to {target:.1%}: {first} {numbers[first]} s, {second} {numbers[second]} s"
        return judge_ratio(Ratio.of(this, other), sentence, numbers)

    return judged


def _finding(
    name: str, short: str, where: str, text: str, methods: tuple[str, str], judge: Callable[[Arms, float], Judgement]
) -> Finding:
    return Finding(name=name, short=short, where=where, text=text, methods=methods, judge=judge)


FINDINGS: tuple[Finding, ...] = (
    _finding(
        "paper-accuracy",
        "paper's plan ≈ whole",
        "the paper",
        "The paper's plan loses less than 3 points to no pruning.",
        (PAPERS, WHOLE),
        _accuracy(PAPERS, WHOLE, judge_no_worse),
    ),
    _finding(
        "fair-accuracy",
        "fair shares ≈ whole",
        "the paper, fair shares",
        "With shares that equalise pruning ratios it loses less than 3 points.",
        (FAIR, WHOLE),
        _accuracy(FAIR, WHOLE, judge_no_worse),
    ),
    _finding(
        "fair-better",
        "fair shares > paper's",
        "league",
        "Shares that equalise pruning ratios are more accurate than the paper's.",
        (FAIR, PAPERS),
        _accuracy(FAIR, PAPERS, judge_better),
    ),
    _finding(
        "papers-sooner",
        "paper's plan sooner than whole",
        "the paper",
        "The paper's plan reaches the target sooner than no pruning with 64 bits.",
        (PAPERS, WHOLE),
        _sooner(PAPERS, WHOLE),
    ),
    _finding(
        "pruning-sooner",
        "pruning sooner than whole",
        "the paper, fair shares",
        "Pruning with these shares reaches the target sooner than no pruning with 64 bits.",
        (FAIR, WHOLE),
        _sooner(FAIR, WHOLE),
    ),
    _finding(
        "pruning-sooner-than-dropping",
        "pruning sooner than dropping",
        "own",
        "Pruning with fair shares reaches the target sooner than dropping the devices that would miss the deadline.",
        (FAIR, DROPPING),
        _sooner(FAIR, DROPPING),
    ),
    _finding(
        "half-sooner",
        "32 bits sooner than pruning",
        "league",
        "Half the bits without pruning reach the target sooner than pruning.",
        ("fp32", FAIR),
        _sooner("fp32", FAIR),
    ),
    _finding(
        "eight-sooner",
        "8 bits sooner than 32",
        "league",
        "8 bits reach the target sooner than 32.",
        ("fixed-8", "fp32"),
        _sooner("fixed-8", "fp32"),
    ),
    _finding(
        "four-sooner",
        "4 bits sooner than 8",
        "league",
        "4 bits reach the target sooner than 8.",
        ("fixed-4", "fixed-8"),
        _sooner("fixed-4", "fixed-8"),
    ),
    _finding(
        "four-sooner-than-ternary",
        "4 bits sooner than STC",
        "league",
        "4 bits reach the target sooner than sparse ternary compression at 1/32.",
        ("fixed-4", "stc"),
        _sooner("fixed-4", "stc"),
    ),
    _finding(
        "planned-bits-sooner",
        "planned bits sooner than 4",
        "own",
        "Planned bits (adaptive-bits) reach the target sooner than 4 bits for all.",
        ("adaptive-bits", "fixed-4"),
        _sooner("adaptive-bits", "fixed-4"),
    ),
)


def judged(results: Sequence[ArmResult], rungs: Iterable[str]) -> list[dict[str, Any]]:
    """Returns every finding on every rung, as JSON."""
    target = target_of(results)
    return [
        {"claim": one.name, "where": one.where, "text": one.text, "rung": rung}
        | one.judgement(by_method(results, rung), target).as_json()
        for rung in rungs
        for one in FINDINGS
    ]
