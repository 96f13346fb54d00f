"""A league folder as the page shows it: the content of league.json, cut to a sane size, whatever the file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airprune.runs.lines import read_json
from airprune.studies.league.document import DOCUMENT, figure_name
from airprune.studies.league.tracks import TRACKS
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

MAX_ROWS = 300
MAX_COLUMNS = 40

_TABLES = ("league.csv", "league.tex")


def start(root: Path, chosen: str | None) -> dict[str, Any]:
    return start_page(root, "league", chosen, view, recorded.league())


def view(root: Path, name: str) -> dict[str, Any]:
    folder = folder_of(root, "league", name, DOCUMENT)
    document = read_json(folder / DOCUMENT)
    found = document if isinstance(document, dict) else {}
    return {
        "name": name,
        "note": shown_text(found.get("note")),
        "is_readable": isinstance(document, dict),
        "divisions": [_track(folder, track) for track in _dicts(found.get("divisions"), len(TRACKS))],
        "claims": [claim_shown(claim) for claim in _dicts(found.get("claims"), MAX_CLAIMS)],
        "files": [name for name in _TABLES if is_readable(folder / name)],
    }


def _track(folder: Path, track: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: shown_text(track.get(key)) for key in ("name", "title", "about")},
        "tables": [_table(table) for table in _dicts(track.get("tables"), 4)],
        "notes": [shown_text(note) for note in _list(track.get("notes"))[:MAX_ROWS]],
        "picture": _figure(folder, track.get("name")),
    }


def _figure(folder: Path, track: Any) -> dict[str, Any] | None:
    """Returns the figure of a track that exists: a path that the file names is never followed."""
    if not isinstance(track, str) or track not in TRACKS:
        return None
    png = folder / f"{figure_name(track)}.png"
    return figure_shown(png, [png.with_suffix(".pdf")]) if is_readable(png) else None


def _table(table: dict[str, Any]) -> dict[str, Any]:
    """Returns a table that is rectangular, whatever the file holds."""
    header = [shown_text(name) for name in _list(table.get("header"))[:MAX_COLUMNS]]
    rows = [[shown_text(cell) for cell in _list(row)[: len(header)]] for row in _list(table.get("rows"))[:MAX_ROWS]]
    words = _list(table.get("words"))
    return {
        "title": shown_text(table.get("title")),
        "header": header,
        "rows": [row + [""] * (len(header) - len(row)) for row in rows],
        "words": [i for i, name in enumerate(header) if name in words],
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any, limit: int) -> list[dict[str, Any]]:
    return [entry for entry in _list(value) if isinstance(entry, dict)][:limit]


def file_of(root: Path, name: str, wanted: str) -> Path:
    """Returns a track's figure, its PDF or a table; 404 for anything else that may lie in the folder."""
    folder = folder_of(root, "league", name, DOCUMENT)
    known = {f"{figure_name(track)}{suffix}" for track in TRACKS for suffix in (".png", ".pdf")}
    return checked_file(folder / wanted if wanted in known | set(_TABLES) else None, wanted, "league", name)
