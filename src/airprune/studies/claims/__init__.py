"""Claims, their verdicts and judgements. A verdict is computed, never typed.

    intervals    rules by which numbers over seeds decide a claim
    agreement    a test of whether seeds agree on an order
    table        claims in HTML reports

The paper's claims are judged from tables (`paper.claim`), those of the league's methods from runs (`league.claims`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, ParamSpec

P = ParamSpec("P")


class Verdict(StrEnum):
    HOLDS = "holds"
    PARTLY = "holds in part"
    FAILS = "does not hold"
    UNDECIDED = "cannot be decided"

    @classmethod
    def of(cls, holds: bool, *, partly: bool = False) -> Verdict:
        return cls.HOLDS if holds else cls.PARTLY if partly else cls.FAILS

    @property
    def sign(self) -> str:
        """A sign that can be read without colour."""
        return _SIGNS[self]

    @property
    def badge(self) -> str:
        """The kind of badge, hence its colour, in reports and pages."""
        return _BADGES[self]

    def as_json(self, count: int) -> dict[str, Any]:
        """Returns the verdict and the number of claims that have it, for the web pages."""
        return {"sign": self.sign, "word": self.value, "kind": self.badge, "count": count}


_SIGNS = {Verdict.HOLDS: "✓", Verdict.PARTLY: "◐", Verdict.FAILS: "✗", Verdict.UNDECIDED: "?"}
_BADGES = {Verdict.HOLDS: "good", Verdict.PARTLY: "fair", Verdict.FAILS: "bad", Verdict.UNDECIDED: "open"}


def verdict_of(claim: Mapping[str, Any]) -> Verdict | None:
    """Returns the verdict of a claim that was written as JSON; None if it is not one of ours."""
    try:
        return Verdict(str(claim.get("verdict")))
    except ValueError:
        return None


@dataclass(frozen=True)
class Judgement:
    """A verdict, the numbers it rests on, and the reason in a sentence."""

    verdict: Verdict
    reason: str
    numbers: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"verdict": self.verdict.value, "reason": self.reason, "numbers": self.numbers}


@dataclass(frozen=True, kw_only=True)
class Claim(Generic[P]):
    """One statement, in our words.

    Attributes:
      where: its source.
      judge: returns the judgement of the evidence.
    """

    name: str
    where: str
    text: str
    judge: Callable[P, Judgement]


def combined(parts: Sequence[Judgement]) -> Judgement:
    """Combines several judgements: all must hold for the whole to hold; some, to hold in part."""
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
    return Judgement(verdict, " ".join(part.reason for part in parts), numbers)
