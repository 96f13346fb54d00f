"""Claims and their verdicts in HTML reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from airprune.results.report.markup import Markup, badge, details, element, facts_table, readable, table
from airprune.studies.claims import Verdict, verdict_of

Claims = Sequence[Mapping[str, Any]]


def verdict_counts(claims: Claims) -> dict[Verdict, Markup]:
    """Returns a badge for each verdict that says how many claims have it."""
    counts = Counter(verdict_of(claim) for claim in claims)
    return {verdict: badge(f"{verdict.sign} {counts[verdict]} of {len(claims)}", verdict.badge) for verdict in Verdict}


def claims_table(claims: Claims, columns: Mapping[str, str]) -> Markup:
    """Returns a row per claim. The claims may come from a file that holds anything.

    Args:
      columns: heading → key of a claim; numbers stand with the reason.
    """
    header = tuple(columns)
    rows = [[_cell(claim, key) for key in columns.values()] for claim in claims]
    return table(header, rows, label="Claims", words=header, class_="claims")


def _cell(claim: Mapping[str, Any], key: str) -> object:
    if key == "verdict":
        verdict = verdict_of(claim)
        if verdict is None:
            return badge(f"? {claim.get('verdict')}", "open")
        return badge(f"{verdict.sign} {verdict.value}", verdict.badge)
    text = readable(claim.get(key))
    if key == "reason":
        numbers = claim.get("numbers")
        if not isinstance(numbers, dict) or not numbers:
            return element("div", text, "")
        return element("div", text, details("numbers", facts_table(numbers, label="Numbers")))
    return text or "" if key == "preset" else text
