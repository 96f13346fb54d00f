"""Claims, their verdicts and judgements. A verdict is computed, never typed.

    verdict      the verdicts
    decision     the rule: an interval over seeds, a smallest effect that matters, seeds added until it decides
    student      Student's t distribution
    intervals    judgements of measured numbers by that rule
    agreement    a test of whether seeds agree on an order
    table        claims in HTML reports

The paper's claims are judged from tables (`paper.claim`), those of the league's methods from runs (`league.claims`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec

from airprune.studies.claims.decision import Decision
from airprune.studies.claims.verdict import Verdict, verdict_of

P = ParamSpec("P")


@dataclass(frozen=True)
class Judgement:
    """A verdict, the numbers it rests on, and the reason in a sentence.

    Attributes:
      decision: seeds, effect, interval and δ; None for claims that need no seeds, such as those about planning alone.
      tuned: True if the learning rates of all arms were tuned, False if not; None where no learning rate matters.
      parts: the judgements that this one combines.
    """

    verdict: Verdict
    reason: str
    numbers: dict[str, Any] = field(default_factory=dict)
    decision: Decision | None = None
    tuned: bool | None = None
    parts: tuple[Judgement, ...] = ()

    @property
    def is_undecided(self) -> bool:
        """True if more seeds may change the verdict."""
        return any(part.is_undecided for part in self.parts) if self.parts else self.verdict is Verdict.UNDECIDED

    def as_json(self) -> dict[str, Any]:
        decision = self.decision.as_json() if self.decision else dict.fromkeys(_DECISION)
        return {
            "verdict": self.verdict.value,
            "reason": self.reason,
            "numbers": self.numbers,
            **decision,
            "tuned": self.tuned,
            "open": self.is_undecided,
        }


_DECISION = ("seeds", "effect", "interval", "delta", "seeds_needed", "unit")


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
    """Combines several judgements: all must hold for the whole to hold; some, to hold in part.

    Its effect and interval are those of the first part that keeps it from holding, or of the first.
    """
    verdicts = [part.verdict for part in parts]
    if len(set(verdicts)) == 1:
        verdict = verdicts[0]
    elif any(v in (Verdict.HOLDS, Verdict.PARTLY) for v in verdicts):
        verdict = Verdict.PARTLY
    else:
        verdict = Verdict.UNDECIDED if Verdict.UNDECIDED in verdicts else Verdict.FAILS
    numbers = {f"{i}: {key}": value for i, part in enumerate(parts, start=1) for key, value in part.numbers.items()}
    decisive = next((part for part in parts if part.verdict is not Verdict.HOLDS), parts[0])
    return Judgement(
        verdict, " ".join(part.reason for part in parts), numbers, decision=decisive.decision, parts=tuple(parts)
    )


__all__ = ["Claim", "Decision", "Judgement", "Verdict", "combined", "verdict_of"]
