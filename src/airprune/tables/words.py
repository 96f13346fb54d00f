"""How values and places are shown in messages: short, on one line, control characters escaped."""

from __future__ import annotations

from airprune.errors import BadTable
from airprune.text import shown


def row_error(source: str, line: int, row: int, problem: str, *, is_list: bool) -> BadTable:
    """The error for 0-based row `row`, which is counted too if the source is a JSON list."""
    return BadTable(source, line, f"{problem} (device {row + 1} of the list)." if is_list else f"{problem}.")


def clipped(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def cell_shown(value: object) -> str:
    """A cell or JSON value; JSON objects come as tuples of pairs."""
    if isinstance(value, tuple):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "null" if value is None else shown(value)
