"""A league folder as the page shows it: what league.json says, cut to a sane size, whatever the file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from airprune.runs.lines import read_json
from airprune.studies.claims import verdict_of
from airprune.studies.league.document import DOCUMENT, figure_name
from airprune.studies.league.tracks import TRACKS
from airprune.text import shown
from airprune.web import recorded
from airprune.web.reproduction.views import MAX_CLAIMS, is_readable, png_size, shown_text, verdict_shown
from airprune.web.reproduction.views import TYPES as PICTURES_AND_TABLES
from airprune.web.runs.listing import listing
from airprune.web.runs.names import folder_named

TYPES = {**PICTURES_AND_TABLES, ".tex": "text/plain; charset=utf-8"}
MAX_ROWS = 300
MAX_COLUMNS = 40

_TABLES = ("league.csv", "league.tex")


def start_page(root: Path, asked: str | None) -> dict[str, Any]:
    """The folder asked for, or the one written last; without one, what comes with airprune is in `recorded`."""
    names = listing(root).latest()["leagues"]
    name = asked if asked in names else next(iter(names), None)
    unknown = asked if asked is not None and asked not in names else None
    folder = league(root, name) if name else None
    instead = None if folder else recorded.league()
    return {"folders": names, "unknown": unknown, "folder": folder, "recorded": instead}


def folder_of(root: Path, name: str) -> Path:
    path = folder_named(root, name)
    if not is_readable(path / DOCUMENT):
        raise HTTPException(404, f"There is no league {shown(name)} in the runs folder.")
    return path


def league(root: Path, name: str) -> dict[str, Any]:
    folder = folder_of(root, name)
    document = read_json(folder / DOCUMENT)
    found = document if isinstance(document, dict) else {}
    divisions = _dicts(found.get("divisions"), len(TRACKS))
    claims = _dicts(found.get("claims"), MAX_CLAIMS)
    return {
        "name": name,
        "note": shown_text(found.get("note")),
        "is_readable": isinstance(document, dict),
        "divisions": [_division(folder, division) for division in divisions],
        "claims": [_claim(claim) for claim in claims],
        "files": [name for name in _TABLES if is_readable(folder / name)],
    }


def _division(folder: Path, division: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: shown_text(division.get(key)) for key in ("name", "title", "about")},
        "tables": [_table(table) for table in _dicts(division.get("tables"), 4)],
        "notes": [shown_text(note) for note in _list(division.get("notes"))[:MAX_ROWS]],
        "picture": _picture(folder, division.get("name")),
    }


def _picture(folder: Path, division: Any) -> dict[str, Any] | None:
    """Only of divisions that exist: the file's word for a path is not taken."""
    if not isinstance(division, str) or division not in TRACKS:
        return None
    png = folder / f"{figure_name(division)}.png"
    if not is_readable(png):
        return None
    width, height = png_size(png)
    files = [path.name for path in (png, png.with_suffix(".pdf")) if is_readable(path)]
    return {"file": png.name, "width": width, "height": height, "files": files}


def _table(table: dict[str, Any]) -> dict[str, Any]:
    """Rectangular, whatever it was."""
    header = [shown_text(name) for name in _list(table.get("header"))[:MAX_COLUMNS]]
    rows = [[shown_text(cell) for cell in _list(row)[: len(header)]] for row in _list(table.get("rows"))[:MAX_ROWS]]
    words = _list(table.get("words"))
    return {
        "title": shown_text(table.get("title")),
        "header": header,
        "rows": [row + [""] * (len(header) - len(row)) for row in rows],
        "words": [i for i, name in enumerate(header) if name in words],
    }


def _claim(claim: dict[str, Any]) -> dict[str, Any]:
    numbers = claim.get("numbers")
    return {
        **{key: shown_text(claim.get(key)) for key in ("where", "text", "reason")},
        "verdict": verdict_shown(verdict_of(claim), claim),
        "numbers": [[shown_text(key), shown_text(value)] for key, value in numbers.items()]
        if isinstance(numbers, dict)
        else [],
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any, limit: int) -> list[dict[str, Any]]:
    return [entry for entry in _list(value) if isinstance(entry, dict)][:limit]


def file_of(root: Path, name: str, wanted: str) -> Path:
    """A division's picture, its PDF or a table; 404 for anything else that may lie in the folder."""
    folder = folder_of(root, name)
    known = {f"{figure_name(division)}{suffix}" for division in TRACKS for suffix in (".png", ".pdf")}
    path = folder / wanted if wanted in known | set(_TABLES) else None
    if path is None or not is_readable(path):
        raise HTTPException(404, f"{shown(wanted)} is not a picture or table of the league {shown(name)}.")
    return path
