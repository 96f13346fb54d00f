"""The verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    HOLDS = "holds"
    PARTLY = "holds in part"
    SAME = "no difference larger than δ"
    FAILS = "does not hold"
    UNDECIDED = "cannot be decided"
    NOT_TESTABLE = "not testable here"

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


_SIGNS = {
    Verdict.HOLDS: "✓",
    Verdict.PARTLY: "◐",
    Verdict.SAME: "=",
    Verdict.FAILS: "✗",
    Verdict.UNDECIDED: "?",
    Verdict.NOT_TESTABLE: "–",
}
_BADGES = {
    Verdict.HOLDS: "good",
    Verdict.PARTLY: "fair",
    Verdict.SAME: "fair",
    Verdict.FAILS: "bad",
    Verdict.UNDECIDED: "open",
    Verdict.NOT_TESTABLE: "open",
}


def verdict_of(claim: Mapping[str, Any]) -> Verdict | None:
    """Returns the verdict of a claim that was written as JSON; None if it is not one of ours."""
    try:
        return Verdict(str(claim.get("verdict")))
    except ValueError:
        return None
