"""A reproduction folder as the page shows it. Its runs are on the runs page."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from airprune.studies.claims import Verdict, verdict_of
from airprune.studies.paper.report import Picture, any_run, claims_in, figures_in, profile_of, rows_of, shown_table
from airprune.studies.paper.reproduction import SHOWN_TABLES
from airprune.web import recorded
from airprune.web.results.folders import (
    MAX_CLAIMS,
    checked_file,
    claim_shown,
    figure_shown,
    folder_of,
    is_readable,
    shown_text,
    start_page,
)

_MAX_ROWS = 200


def start(root: Path, chosen: str | None) -> dict[str, Any]:
    return start_page(root, "reproduction", chosen, view, recorded.reproduction())


def view(root: Path, name: str) -> dict[str, Any]:
    folder = folder_of(root, "reproduction", name, "claims.json")
    claims = claims_in(folder)
    counts = Counter(verdict_of(claim) for claim in claims or [])
    profile = profile_of(any_run(folder / "runs"))
    return {
        "name": name,
        "profile": f"{profile.note[0].upper()}{profile.note[1:]}." if profile else None,
        "claims": None if claims is None else [claim_shown(claim) for claim in claims[:MAX_CLAIMS]],
        "num_claims": len(claims or []),
        "verdicts": [verdict.as_json(counts[verdict]) for verdict in Verdict],
        "pictures": [_picture(picture) for picture in _pictures(folder)],
        "tables": [table for key in SHOWN_TABLES if (table := _table(folder, key))],
    }


def _pictures(folder: Path) -> list[Picture]:
    """Returns the figures of the paper's artefacts: nothing else of the folder is served."""
    return [picture for picture in figures_in(folder) if picture.artefact and is_readable(picture.png)]


def _picture(picture: Picture) -> dict[str, Any]:
    others = [path for path in picture.files if path != picture.png]
    return {**figure_shown(picture.png, others), "caption": picture.caption, "alt": picture.alt}


def _table(folder: Path, name: str) -> dict[str, Any] | None:
    path = folder / f"{name}.csv"
    rows = rows_of(path) if is_readable(path) else None
    if not rows:
        return None
    header, cells, words = shown_table(name, rows[:_MAX_ROWS])
    return {
        "file": path.name,
        "title": SHOWN_TABLES[name],
        "header": [shown_text(key) for key in header],
        "rows": [[shown_text(cell) for cell in row] for row in cells],
        "words": [i for i, key in enumerate(header) if key in words],
    }


def file_of(root: Path, name: str, wanted: str) -> Path:
    """Returns a figure, its PDF or a table of numbers; 404 for anything else that may lie in the folder."""
    folder = folder_of(root, "reproduction", name, "claims.json")
    known = {path.name: path for picture in _pictures(folder) for path in picture.files}
    known |= {f"{table}.csv": folder / f"{table}.csv" for table in SHOWN_TABLES}
    return checked_file(known.get(wanted), wanted, "reproduction", name)
