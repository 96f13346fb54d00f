"""Writes files that appear whole or not at all."""

from __future__ import annotations

import csv
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from airprune.errors import InvalidValue, UsageError, WorkFailed
from airprune.text import printable

CHUNK_ROWS = 50_000


def write_csv_atomic(
    path: Path | str,
    header: Sequence[str],
    columns: Sequence[np.ndarray | Sequence[Any]],
    *,
    follow_link: bool = True,
) -> None:
    """Writes columns of equal length as CSV: the whole file appears, or the old one stays.

    Floats take the fewest digits that read back to the same value; NaN and None become empty cells.

    Args:
      follow_link: whether a link at `path` stays, and what it leads to is written; else the file takes its place, as
        is right in a folder that another user may have filled.
    """
    _num_rows(header, columns)  # refused before there is a file
    with _atomic(path, follow_link) as file:
        write_csv(file, header, columns)


def write_csv(file: TextIO, header: Sequence[str], columns: Sequence[np.ndarray | Sequence[Any]]) -> None:
    """Writes the same into an open file."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for start in range(0, _num_rows(header, columns), CHUNK_ROWS):
        cells = [_cells(column[start : start + CHUNK_ROWS]) for column in columns]
        writer.writerows(zip(*cells, strict=True))


def _num_rows(header: Sequence[str], columns: Sequence[np.ndarray | Sequence[Any]]) -> int:
    lengths = [len(column) for column in columns]
    if len(header) != len(columns) or len(set(lengths)) > 1:
        raise InvalidValue("columns", f"must be {len(header)} of equal length", f"lengths {lengths}")
    return max(lengths, default=0)


def write_text_atomic(path: Path | str, text: str, *, follow_link: bool = True) -> None:
    """Writes a text in UTF-8: the whole file appears, or the old one stays; `follow_link` as of `write_csv_atomic`."""
    with _atomic(path, follow_link) as file:
        file.write(text)


def _cells(column: np.ndarray | Sequence[Any]) -> list[Any]:
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "iub" or (column.dtype.kind == "f" and not np.isnan(column).any()):
            return column.tolist()
        column = column.tolist()
    return ["" if cell != cell else cell for cell in column]  # only NaN differs from itself


@contextmanager
def _atomic(path: Path | str, follow_link: bool) -> Iterator[TextIO]:
    """Opens a new file beside `path` that takes its name on success and vanishes on failure."""
    shown = printable(str(path))
    try:
        target = Path(path).resolve() if follow_link else Path(path)
        if not target.is_symlink() and target.exists() and not target.is_file():
            raise UsageError(f"{shown} must be a file to write, got a folder or a device.")
        temporary = target.with_name(f".airprune-{secrets.token_hex(8)}.tmp")
        file = temporary.open("x", encoding="utf-8", newline="")
    except FileNotFoundError as error:
        raise UsageError(f"{shown} cannot be written: its folder does not exist; create it first.") from error
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{shown} cannot be written: {reason}; choose another place.") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists() and not target.is_symlink():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except OSError as error:  # a full disk, say
        raise WorkFailed(f"{shown} was not written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
