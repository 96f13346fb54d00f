"""The rule that decides a claim from one number per seed: an interval, a smallest effect that matters, and seeds that
are added until the interval decides.

A number is the effect on one seed in the claimed direction: a difference of accuracies, or the logarithm of a ratio of
costs. Seeds come in blocks, and after each block the claim is looked at: at 5, 10 and 20 seeds. The first look that
decides is final. To keep the error of all looks together below 5 %, each look uses an interval of confidence
1 − 0.05 / 3 (Bonferroni): exact at any sample size, where the constants of Pocock's rule suppose large ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from airprune.studies.claims.student import student_t
from airprune.studies.claims.verdict import Verdict

ERROR = 0.05
# The smallest differences that matter: 3 points of accuracy, 0.08 of loss, 10 % of time, bits, joules or rounds.
DELTA = {"test_accuracy": 0.03, "test_loss": 0.08, "cost": 0.10}
_MOST_SEEDS = 100_000


class Aim(StrEnum):
    """The relation that a claim states between two arms."""

    BETTER = "better"
    MUCH_BETTER = "better by at least δ"
    NO_WORSE = "worse by less than δ"
    SAME = "different by less than δ"


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds at which a claim may be decided.

    Attributes:
      at: rising; empty: once, at whatever number of seeds there is, which was chosen before the runs.
    """

    at: tuple[int, ...] = ()
    error: float = ERROR

    @property
    def level(self) -> float:
        """The confidence of each look's interval."""
        return 1.0 - self.error / max(1, len(self.at))

    def within(self, num_seeds: int) -> list[int]:
        """Returns the looks that so many seeds allow; before the first one, these seeds, which decide nothing."""
        if not self.at:
            return [num_seeds]
        return [look for look in self.at if look <= num_seeds] or [num_seeds]

    def decides(self, num_seeds: int) -> bool:
        return num_seeds >= 2 and (not self.at or num_seeds >= self.at[0])

    def next_after(self, num_seeds: int) -> int | None:
        """Returns the next look; None after the last."""
        return next((look for look in self.at if look > num_seeds), None)


ONE_LOOK = Looks()
SEQUENTIAL = Looks((5, 10, 20))


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A verdict on one comparison, and the numbers that it rests on.

    Attributes:
      seeds: number of seeds of the look.
      effect: mean over seeds in the claimed direction; NaN if there is none, as where half of the seeds have no number.
      low, high: its interval at the confidence of a look; infinite for a single seed.
      seeds_needed: of a claim that cannot be decided, the seeds that would decide it at the observed mean and variance;
        None if unknown.
      unit: of effect, interval and δ: `accuracy`, `loss`, or `share saved`.
    """

    verdict: Verdict
    seeds: int
    effect: float
    low: float
    high: float
    delta: float
    seeds_needed: int | None = None
    unit: str = "accuracy"

    def scaled(self, to_shown: Callable[[float], float], unit: str) -> Decision:
        """Returns the same decision with its numbers in another unit, given by a rising function that keeps 0."""
        effect, low, high, delta = map(to_shown, (self.effect, self.low, self.high, self.delta))
        return replace(self, effect=effect, low=low, high=high, delta=delta, unit=unit)

    def as_json(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "effect": _finite(self.effect),
            "interval": [_finite(self.low), _finite(self.high)],
            "delta": _finite(self.delta),
            "seeds_needed": self.seeds_needed,
            "unit": self.unit,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def decide(effects: Sequence[float], aim: Aim, *, delta: float, looks: Looks = ONE_LOOK) -> Decision:
    """Returns the decision of the first look that decides, or else that of the last.

    Effects may be infinite, where only one of two arms reached a target: there the interval is that of the median.
    """
    found = None
    for count in looks.within(len(effects)):
        found = look_at(effects[:count], aim, delta=delta, looks=looks)
        if found.verdict is not Verdict.UNDECIDED:
            break
    assert found is not None
    return found


def undecided(num_seeds: int, *, delta: float = math.nan, unit: str = "accuracy") -> Decision:
    """Returns the decision on seeds that have no effect, as where training diverged or neither arm reached a target."""
    return Decision(
        verdict=Verdict.UNDECIDED,
        seeds=num_seeds,
        effect=math.nan,
        low=-math.inf,
        high=math.inf,
        delta=delta,
        unit=unit,
    )


def look_at(numbers: Sequence[float], aim: Aim, *, delta: float, looks: Looks) -> Decision:
    """Returns the decision of one look, on all of these numbers."""
    effects = np.asarray(numbers, dtype=float)
    effect, low, high = interval_of(effects, looks.level)
    verdict = _verdict(aim, effect, low, high, delta) if looks.decides(len(effects)) else Verdict.UNDECIDED
    found = Decision(verdict=verdict, seeds=len(effects), effect=effect, low=low, high=high, delta=delta)
    if verdict is not Verdict.UNDECIDED:
        return found
    return replace(found, seeds_needed=_seeds_needed(effects, aim, delta, looks))


def interval_of(effects: np.ndarray, level: float) -> tuple[float, float, float]:
    """Returns (mean, low, high) by Student's t; with infinite effects, the median and an interval of order statistics.

    The latter needs no distribution: the k-th smallest and the k-th largest enclose the median except with probability
    2 P(Binomial(n, ½) < k). With too few seeds it is infinite.
    """
    count = len(effects)
    if count == 0:
        return math.nan, -math.inf, math.inf
    if np.all(np.isfinite(effects)):
        mean = float(effects.mean())
        if count == 1:
            return mean, -math.inf, math.inf
        half = student_t(level, count - 1) * float(np.std(effects, ddof=1)) / math.sqrt(count)
        return mean, mean - half, mean + half
    ordered = np.sort(effects)
    place = _order_place(count, 1.0 - level)
    low, high = (-math.inf, math.inf) if place == 0 else (float(ordered[place - 1]), float(ordered[count - place]))
    middle = ordered[(count - 1) // 2], ordered[count // 2]
    effect = math.nan if math.isinf(middle[0]) and middle[0] == -middle[1] else float(np.mean(middle))
    return effect, low, high


def _order_place(count: int, error: float) -> int:
    """Returns the largest k with 2 P(Binomial(count, ½) < k) ≤ error; 0 if there is none."""
    place, below = 0, 0.0
    while place < count:
        below += math.comb(count, place) / 2.0**count
        if 2.0 * below > error:
            break
        place += 1
    return place


def _verdict(aim: Aim, effect: float, low: float, high: float, delta: float) -> Verdict:
    is_within = -delta < low and high < delta
    if aim is Aim.NO_WORSE:
        return Verdict.HOLDS if low > -delta else Verdict.FAILS if high < -delta else Verdict.UNDECIDED
    if aim is Aim.SAME:
        is_outside = low > delta or high < -delta
        return Verdict.HOLDS if is_within else Verdict.FAILS if is_outside else Verdict.UNDECIDED
    if low > 0.0 and (aim is Aim.BETTER or effect >= delta):
        return Verdict.HOLDS
    if high < 0.0:
        return Verdict.FAILS
    if is_within:
        return Verdict.SAME
    return Verdict.FAILS if aim is Aim.MUCH_BETTER and high < delta else Verdict.UNDECIDED


def _seeds_needed(effects: np.ndarray, aim: Aim, delta: float, looks: Looks) -> int | None:
    """Returns the fewest seeds whose interval would decide, if mean and variance stay as they are; None if unknown."""
    if len(effects) < 2 or not np.all(np.isfinite(effects)):
        return None
    mean, deviation = float(effects.mean()), float(np.std(effects, ddof=1))
    margin = {
        Aim.BETTER: max(abs(mean), delta - abs(mean)),
        Aim.MUCH_BETTER: mean if mean >= delta else delta - mean,
        Aim.NO_WORSE: abs(mean + delta),
        Aim.SAME: abs(delta - abs(mean)),
    }[aim]

    def is_enough(count: int) -> bool:
        return student_t(looks.level, count - 1) * deviation < margin * math.sqrt(count)

    low = max(2, looks.at[0] if looks.at else 2)
    if is_enough(low):
        return low
    high = 2 * low
    while not is_enough(high):
        low, high = high, 2 * high
        if high > _MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
