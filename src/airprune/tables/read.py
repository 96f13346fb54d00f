"""Reads a table: its source becomes chunks of rows, and these one array per column."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from airprune.errors import BadTable
from airprune.tables.columns import Column, Refused, cell_shown, row_error
from airprune.tables.csv_text import csv_chunks
from airprune.tables.header import Header
from airprune.tables.json_text import json_chunks
from airprune.tables.source import MAX_TABLE_BYTES, capped, opened, text_blocks


@dataclass(frozen=True, eq=False)
class Table:
    """A table as read.

    Attributes:
      source: the name used in messages.
      columns: one array per column.  [num_rows]
        Numbers are float64. Labels are int64 if all of them are integers, otherwise objects: strings, and
        from JSON also Python integers.
      line: 1-based line on which each row starts in the source.  [num_rows]
      ignored: unknown columns, each with the nearest absent name:
        `cpu_ghz (did you mean cpu_hz?)`.
      is_list: the source was a JSON list, where a line alone may not identify the row.
      present: known columns that the source has; `columns` holds defaults of others too.
    """

    source: str
    columns: dict[str, np.ndarray]
    line: np.ndarray
    ignored: tuple[str, ...] = ()
    is_list: bool = False
    present: frozenset[str] = frozenset()

    @property
    def num_rows(self) -> int:
        return len(self.line)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def error(self, row: int, problem: str) -> BadTable:
        """Returns the error to raise when row `row` (0-based) turns out wrong after reading."""
        return row_error(self.source, int(self.line[row]), row, problem, is_list=self.is_list)


def read_table(
    source: Path | str | BinaryIO,
    columns: Sequence[Column],
    *,
    unique: str | None = "device",
    max_rows: int = 20_000_000,
    max_bytes: int = MAX_TABLE_BYTES,
    is_quoted: bool = True,
) -> Table:
    """Reads a device table; raises `BadTable` with the line at fault.

    CSV is UTF-8 with a header; the separator is a comma, or a semicolon or tab if the header has no comma.
    JSON is a list of objects or `{"devices": [...]}`, recognised by its first character.

    Args:
      source: a path, `-` for standard input, or a binary stream, which is left open.
      columns: the columns to look for; others are ignored and listed in `Table.ignored`.
      unique: the column in which no value may occur twice, if it is present.
      max_rows: more rows than this are refused.
      max_bytes: a longer JSON text is refused.
      is_quoted: whether messages may show contents of the table; else another file has named it: it is opened as
        `airprune.files` does, and messages show only the names of known columns.
    """
    header = Header(columns, is_quoted=is_quoted)
    with opened(source, is_own=is_quoted) as (stream, name):
        blocks = text_blocks(stream, name)
        first = next(blocks, "")
        blocks = itertools.chain([first], blocks)
        is_list = first.lstrip().startswith(("[", "{"))
        if is_list:
            chunks = json_chunks(capped(blocks, name, max_bytes), name, header)
        else:
            title = first.lstrip().partition("\n")[0]
            delimiter = next((mark for mark in ",;\t" if mark in title), ",")
            chunks = csv_chunks(blocks, name, header, delimiter)
        gathering = _Gathering(source=name, header=header, unique=unique, max_rows=max_rows, is_list=is_list)
        for lines, cells in chunks:
            gathering.add(lines, cells)
        return gathering.table()


@dataclass(kw_only=True)
class _Gathering:
    """The rows so far: per chunk their lines, and per column and chunk an array."""

    source: str
    header: Header
    unique: str | None
    max_rows: int
    is_list: bool
    num_rows: int = 0
    lines: list[np.ndarray] = field(default_factory=list)
    parts: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))

    def add(self, lines: np.ndarray, cells: Mapping[str, Sequence[Any]]) -> None:
        """Takes the cells of some rows by column."""
        if self.num_rows + len(lines) > self.max_rows:
            line = int(lines[self.max_rows - self.num_rows])
            raise BadTable(self.source, line, f"more than {self.max_rows:,} rows; split the table.")
        for name in cells:
            try:
                part = self.header.known[name].array(cells[name], text=not self.is_list)
            except Refused as refused:
                line, row = int(lines[refused.index]), self.num_rows + refused.index
                raise row_error(self.source, line, row, self.header.said(refused), is_list=self.is_list) from None
            self.parts[name].append(part)
        self.lines.append(lines)
        self.num_rows += len(lines)
        if self.unique and self.unique in cells and _has_duplicate(self.parts[self.unique][-1]):
            self.table()  # fails at once, as the stream may be endless

    def table(self) -> Table:
        if not self.num_rows:
            raise BadTable(self.source, 0, "no rows; a table needs a row per device.")
        columns: dict[str, np.ndarray] = {}
        for name, column in self.header.known.items():
            if name in self.header.present:
                columns[name] = self._merged(self.parts[name])
            elif column.default is not None:
                columns[name] = np.repeat(column.array([None], text=False), self.num_rows)
        table = Table(
            source=self.source,
            columns=columns,
            line=np.concatenate(self.lines),
            ignored=self.header.ignored(),
            is_list=self.is_list,
            present=frozenset(self.header.present),
        )
        if self.unique and self.unique in table and _has_duplicate(table[self.unique]):
            raise _duplicate(table, self.unique, is_quoted=self.header.is_quoted)
        return table

    def _merged(self, parts: list[np.ndarray]) -> np.ndarray:
        if len({part.dtype for part in parts}) > 1:  # labels: integers in some chunks only
            texts = [part if self.is_list or part.dtype == object else part.astype(str) for part in parts]
            parts = [part.astype(object) for part in texts]
        return np.concatenate(parts)


def _has_duplicate(values: np.ndarray) -> bool:
    if values.dtype == object:
        return len(set(values.tolist())) < len(values)
    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())


def _duplicate(table: Table, name: str, *, is_quoted: bool) -> BadTable:
    first_row: dict[Any, int] = {}
    labels = table[name].tolist()
    row = next(row for row, label in enumerate(labels) if first_row.setdefault(label, row) != row)
    first = first_row[labels[row]]
    other = f"device {first + 1}" if table.is_list else f"line {table.line[first]}"
    which = f"{name} {cell_shown(labels[row])}" if is_quoted else f"this {name}"
    return table.error(row, f"{which} is already on {other}; each may occur once")
