"""Shared by the pages of results: the folder to show, claims, figures, and texts of bounded length."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from airprune import files
from airprune.studies.claims import verdict_of
from airprune.text import readable, shown
from airprune.web.answers import MAX_FILE_BYTES
from airprune.web.runs.listing import listing
from airprune.web.runs.names import folder_named

MAX_CLAIMS = 500
TYPES = {
    ".png": "image/png",
    ".pdf": "application/pdf",
    ".csv": "text/csv; charset=utf-8",
    ".tex": "text/plain; charset=utf-8",
}
_MAX_TEXT = 4_000


def start_page(
    root: Path, kind: str, chosen: str | None, view: Callable[[Path, str], dict[str, Any]], recorded: dict[str, Any]
) -> dict[str, Any]:
    """Returns the chosen folder, or the one written last, and the results that come with the package."""
    names = listing(root).latest()[f"{kind}s"]
    name = chosen if chosen in names else next(iter(names), None)
    return {
        "folders": names,
        "unknown": chosen if chosen is not None and chosen not in names else None,
        "folder": view(root, name) if name else None,
        "recorded": recorded,
    }


def folder_of(root: Path, kind: str, name: str, document: str) -> Path:
    """Returns the folder of this name if it holds the document; 404 otherwise."""
    path = folder_named(root, name)
    if not is_readable(path / document):
        raise HTTPException(404, f"There is no {kind} {shown(name)} in the runs folder.")
    return path


def checked_file(path: Path | None, wanted: str, kind: str, name: str) -> Path:
    """Returns a figure or table of a folder; 404 if it is none, or cannot be read."""
    if path is None or path.suffix not in TYPES or not is_readable(path):
        raise HTTPException(404, f"{shown(wanted)} is not a figure or table of the {kind} {shown(name)}.")
    return path


def claim_shown(claim: dict[str, Any]) -> dict[str, Any]:
    """Returns a claim with its verdict, even one of a word that is not known."""
    numbers, verdict = claim.get("numbers"), verdict_of(claim)
    unknown = {"sign": "?", "word": shown_text(claim.get("verdict")), "kind": "open"}
    return {
        **{key: shown_text(claim.get(key)) for key in ("where", "text", "preset", "reason")},
        "verdict": unknown if verdict is None else verdict.as_json(1),
        "numbers": [[shown_text(key), shown_text(value)] for key, value in numbers.items()]
        if isinstance(numbers, dict)
        else [],
    }


def figure_shown(png: Path, others: list[Path]) -> dict[str, Any]:
    """Returns a figure's files and its size, so that the page keeps the place free while it loads."""
    width, height = _png_size(png)
    names = [path.name for path in (png, *others) if path.suffix in TYPES and is_readable(path)]
    return {"file": png.name, "width": width, "height": height, "files": names}


def _png_size(png: Path) -> tuple[int, int] | tuple[None, None]:
    try:
        with files.open_to_read(png) as file:
            head = file.read(24)
        return struct.unpack(">II", head[16:24]) if head.startswith(b"\x89PNG") else (None, None)
    except (OSError, struct.error):
        return None, None


def shown_text(value: Any) -> str:
    """Returns a value of a file, of any kind, as a text that fits on a page."""
    text = readable(value)
    return "" if text is None else str(text)[:_MAX_TEXT]


def is_readable(path: Path) -> bool:
    return files.is_regular(path, max_bytes=MAX_FILE_BYTES)
