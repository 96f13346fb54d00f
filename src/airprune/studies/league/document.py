"""A league as plain data: what the page, the web and programs read of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import airprune
from airprune.studies.league.standings import Standings
from airprune.studies.league.tables import csv_rows, notes_of, shown

DOCUMENT = "league.json"


def picture_name(division: str) -> str:
    """Of its files, without the ending."""
    return f"league-{division}"


def document_of(
    found: Sequence[Standings],
    claims: Sequence[Mapping[str, Any]],
    *,
    note: str,
    scenario: str,
    seeds: Sequence[int],
    is_tuned: bool,
) -> dict[str, Any]:
    return {
        "airprune": airprune.__version__,
        "note": note,
        "scenario": scenario,
        "seeds": list(seeds),
        "is_tuned": is_tuned,
        "divisions": [_division(one, is_tuned=is_tuned) for one in found],
        "claims": list(claims),
    }


def _division(found: Standings, *, is_tuned: bool) -> dict[str, Any]:
    return {
        "name": found.division.name,
        "title": found.division.title,
        "about": found.division.about,
        "target_accuracy": found.target,
        "horizon_s": found.horizon_s,
        "picture": f"{picture_name(found.division.name)}.png",
        "tables": [table.as_json() for table in shown(found)],
        "notes": notes_of(found, is_tuned=is_tuned),
        "rows": csv_rows(found),
    }
