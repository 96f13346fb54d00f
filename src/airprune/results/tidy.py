"""Tidy tables: one observation per row, written as CSV and read back, so that claims can be judged from files alone."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airprune import files
from airprune.errors import BadTable
from airprune.tables import write_csv_atomic

Rows = list[dict[str, Any]]
_MAX_BYTES = 2**26


def write_rows(path: Path, rows: Rows) -> None:
    """Writes CSV with the first row's keys as header; numbers in full, None as an empty cell."""
    header = list(rows[0]) if rows else []
    write_csv_atomic(path, header, [[row[name] for row in rows] for name in header], follow_link=False)


def read_rows(path: Path) -> Rows:
    """Reads the rows of a CSV, numbers as floats."""
    try:
        rows = list(csv.DictReader(files.read_bytes(path, max_bytes=_MAX_BYTES).decode().splitlines(keepends=True)))
        for line, row in enumerate(rows, start=2):
            if None in row:
                raise BadTable(str(path), line, "has more cells than the header.")
        return [{key: _value(cell) for key, cell in row.items()} for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no CSV in UTF-8"
        raise BadTable(str(path), 0, f"cannot be read ({reason}).") from None


def _value(cell: str | None) -> Any:
    if cell is None or cell == "":
        return None
    try:
        return float(cell)
    except ValueError:
        return cell


def last_by_seed(rows: Rows, measure: str, **where: Any) -> np.ndarray:
    """Returns the measure in the last round of every seed of one series, seeds ascending."""
    chosen = select(rows, **where)
    seeds = sorted({row["seed"] for row in chosen})
    return np.array(
        [max((r for r in chosen if r["seed"] == s), key=lambda r: r["global_round"])[measure] for s in seeds]
    )


def select(rows: Rows, **where: Any) -> Rows:
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


def values(rows: Rows, name: str) -> list[Any]:
    """Returns the distinct values of a column, in the order of their first row."""
    return list(dict.fromkeys(row[name] for row in rows))


def column(rows: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows], dtype=float)
