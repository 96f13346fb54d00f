"""A league as plain data, for its report, the web page and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import airprune
from airprune.studies.league.standings import Standings
from airprune.studies.league.tables import csv_rows, notes_of, shown

DOCUMENT = "league.json"


def figure_name(track: str) -> str:
    """Returns the name of a track's figure files, without the ending."""
    return f"league-{track}"


def document_of(
    found: Sequence[Standings],
    claims: Sequence[Mapping[str, Any]],
    *,
    note: str,
    scenario: str,
    seeds: Sequence[int],
    is_tuned: bool,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns standings and claims as JSON holds them; `about` has the league's settings, cost and dropped rows."""
    return {
        "airprune": airprune.__version__,
        "note": note,
        "scenario": scenario,
        "seeds": list(seeds),
        "is_tuned": is_tuned,
        **(about or {}),
        "divisions": [_track(one, is_tuned=is_tuned) for one in found],
        "claims": list(claims),
    }


def _track(found: Standings, *, is_tuned: bool) -> dict[str, Any]:
    return {
        "name": found.track.name,
        "title": found.track.title,
        "about": found.track.about,
        "target_accuracy": found.target,
        "horizon_s": found.horizon_s,
        "picture": f"{figure_name(found.track.name)}.png",
        "tables": [asdict(table) for table in shown(found)],
        "notes": notes_of(found, is_tuned=is_tuned),
        "rows": csv_rows(found),
    }
