"""A reproduction folder as the page shows it. Its runs are on the runs page."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from airprune import files
from airprune.studies.claims import Verdict
from airprune.studies.paper.report import (
    Picture,
    any_run,
    claims_in,
    figures_in,
    profile_of,
    rows_of,
    shown_table,
    verdict_of,
)
from airprune.studies.paper.reproduction import SHOWN_TABLES
from airprune.text import readable, shown
from airprune.web import recorded
from airprune.web.answers import MAX_FILE_BYTES
from airprune.web.runs.listing import listing
from airprune.web.runs.names import folder_named

MAX_CLAIMS = 500
TYPES = {".png": "image/png", ".pdf": "application/pdf", ".csv": "text/csv; charset=utf-8"}

_MAX_ROWS = 200
_MAX_TEXT = 4_000


def start_page(root: Path, asked: str | None) -> dict[str, Any]:
    """The folder asked for, or the one written last; without one, what comes with airprune is in `recorded`."""
    names = listing(root).latest()["reproductions"]
    name = asked if asked in names else next(iter(names), None)
    unknown = asked if asked is not None and asked not in names else None
    folder = reproduction(root, name) if name else None
    instead = None if folder else recorded.reproduction()
    return {"folders": names, "unknown": unknown, "folder": folder, "recorded": instead}


def folder_of(root: Path, name: str) -> Path:
    path = folder_named(root, name)
    if not is_readable(path / "claims.json"):
        raise HTTPException(404, f"There is no reproduction {shown(name)} in the runs folder.")
    return path


def reproduction(root: Path, name: str) -> dict[str, Any]:
    folder = folder_of(root, name)
    claims = claims_in(folder)
    counts = Counter(verdict_of(claim) for claim in claims or [])
    profile = profile_of(any_run(folder / "runs"))
    return {
        "name": name,
        "profile": f"{profile.note[0].upper()}{profile.note[1:]}." if profile else None,
        "claims": None if claims is None else [_claim(claim) for claim in claims[:MAX_CLAIMS]],
        "num_claims": len(claims or []),
        "verdicts": [verdict.as_json(counts[verdict]) for verdict in Verdict],
        "pictures": [_picture(picture) for picture in _pictures(folder)],
        "tables": [table for key in SHOWN_TABLES if (table := _table(folder, key))],
    }


def _claim(claim: dict[str, Any]) -> dict[str, Any]:
    verdict = verdict_of(claim)
    numbers = claim.get("numbers")
    return {
        **{key: shown_text(claim.get(key)) for key in ("where", "text", "preset", "reason")},
        "verdict": verdict_shown(verdict, claim),
        "numbers": [[shown_text(key), shown_text(value)] for key, value in numbers.items()]
        if isinstance(numbers, dict)
        else [],
    }


def verdict_shown(verdict: Verdict | None, claim: dict[str, Any]) -> dict[str, Any]:
    """A claim's verdict, also one that nobody knows."""
    if verdict is None:
        return {"sign": "?", "word": shown_text(claim.get("verdict")), "kind": "open"}
    return verdict.as_json(1)


def shown_text(value: Any) -> str:
    """A value of a file, of any kind, as a text that fits on a page."""
    text = readable(value)
    return "" if text is None else str(text)[:_MAX_TEXT]


def _pictures(folder: Path) -> list[Picture]:
    """Those of the paper's tables and figures: nothing else of the folder is served."""
    return [picture for picture in figures_in(folder) if picture.artefact and is_readable(picture.png)]


def _picture(picture: Picture) -> dict[str, Any]:
    width, height = png_size(picture.png)
    return {
        "file": picture.png.name,
        "width": width,
        "height": height,
        "caption": picture.caption,
        "alt": picture.alt,
        "files": [path.name for path in picture.files if path.suffix in TYPES and is_readable(path)],
    }


def png_size(png: Path) -> tuple[int, int] | tuple[None, None]:
    """Width and height, so that the page keeps the place free while the picture loads."""
    try:
        with files.open_to_read(png) as file:
            head = file.read(24)
        return struct.unpack(">II", head[16:24]) if head.startswith(b"\x89PNG") else (None, None)
    except (OSError, struct.error):
        return None, None


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
    """A picture, its PDF or a table of numbers; 404 for anything else that may lie in the folder."""
    folder = folder_of(root, name)
    known = {path.name: path for picture in _pictures(folder) for path in picture.files}
    known |= {f"{table}.csv": folder / f"{table}.csv" for table in SHOWN_TABLES}
    path = known.get(wanted)
    if path is None or path.suffix not in TYPES or not is_readable(path):
        raise HTTPException(404, f"{shown(wanted)} is not a picture or table of the reproduction {shown(name)}.")
    return path


def is_readable(path: Path) -> bool:
    return files.is_regular(path, max_bytes=MAX_FILE_BYTES)
