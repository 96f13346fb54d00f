"""Reading a table: its source becomes rows, chunks of rows become arrays, the arrays a `Table`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from airprune.errors import BadTable
from airprune.tables.columns import Column, Refused
from airprune.tables.csv_text import csv_rows, delimiter_of
from airprune.tables.header import Header
from airprune.tables.json_text import json_rows
from airprune.tables.source import capped, opened, text_blocks
from airprune.tables.words import row_error, shown

CHUNK_CELLS = 6_000


@dataclass(frozen=True, eq=False)
class Table:
    """A table as read.

    Attributes:
      source: the name used in messages.
      columns: one array per column.  [num_rows]
        Numbers are float64. Labels are int64 if all of them are integers, otherwise objects: strings, and
        from JSON also Python integers.
      line: 1-based line on which each row starts in the source.  [num_rows]
      ignored: columns that nobody asked for, each with the nearest absent name:
        `cpu_ghz (did you mean cpu_hz?)`.
      is_list: the source was a JSON list, where a line alone may not tell the row.
    """

    source: str
    columns: dict[str, np.ndarray]
    line: np.ndarray
    ignored: tuple[str, ...] = ()
    is_list: bool = False

    @property
    def num_rows(self) -> int:
        return len(self.line)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def error(self, row: int, problem: str) -> BadTable:
        """The error to raise when row `row` (0-based) turns out wrong after reading."""
        return row_error(self.source, int(self.line[row]), row, problem, is_list=self.is_list)


def read_table(
    source: Path | str | BinaryIO,
    columns: Sequence[Column],
    *,
    unique: str | None = "device",
    max_rows: int = 20_000_000,
    max_bytes: int = 2**30,
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
    """
    header = Header(columns)
    with opened(source) as (stream, name):
        blocks = text_blocks(stream, name)
        first = next(blocks, "")
        blocks = itertools.chain([first], blocks)
        is_list = first.lstrip().startswith(("[", "{"))
        if is_list:
            places = {column.name: place for place, column in enumerate(columns)}
            rows: Iterator[tuple[int, list[Any]]] = json_rows(capped(blocks, name, max_bytes), name, header)
            width = len(columns)
        else:
            rows = csv_rows(blocks, name, delimiter_of(first))
            places, width = _csv_places(rows, name, header)
        parts = _Parts(name, header, unique=unique, max_rows=max_rows, is_list=is_list)
        for chunk in _chunks(rows, max(1, CHUNK_CELLS // max(1, width))):
            parts.add(chunk, places)
        return parts.table()


def _csv_places(rows: Iterator[tuple[int, list[str]]], source: str, header: Header) -> tuple[dict[str, int], int]:
    """Takes the first row; where each column stands in the others, and their width."""
    line, names = next(rows, (0, []))
    if not names:
        required = ", ".join(name for name, column in header.known.items() if column.required)
        raise BadTable(source, 0, f"empty; it needs a header with {required} and a row per device.")
    try:
        return header.places(names), len(names)
    except Refused as refused:
        raise BadTable(source, line, f"{refused.problem}.") from None


def _chunks(rows: Iterable[tuple[int, list[Any]]], size: int) -> Iterator[list[tuple[int, list[Any]]]]:
    chunk = []
    try:
        for row in rows:
            chunk.append(row)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except BadTable:
        if chunk:  # a fault further up comes first
            yield chunk
        raise
    if chunk:
        yield chunk


class _Parts:
    """The columns so far, in one array per chunk."""

    def __init__(self, source: str, header: Header, *, unique: str | None, max_rows: int, is_list: bool) -> None:
        self._source = source
        self._header = header
        self._unique = unique
        self._max_rows = max_rows
        self._is_list = is_list
        self._num_rows = 0
        self._lines: list[np.ndarray] = []
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in header.known}

    def add(self, chunk: Sequence[tuple[int, list[Any]]], places: dict[str, int]) -> None:
        lines, rows = zip(*chunk, strict=True)
        if self._num_rows + len(lines) > self._max_rows:
            line = lines[self._max_rows - self._num_rows]
            raise BadTable(self._source, line, f"more than {self._max_rows:,} rows; split the table.")
        cells = list(zip(*rows, strict=True))
        for name, place in places.items():
            try:
                part = self._header.known[name].array(cells[place], text=not self._is_list)
            except Refused as refused:
                row = self._num_rows + refused.index
                line = lines[refused.index]
                raise row_error(self._source, line, row, refused.problem, is_list=self._is_list) from None
            self._parts[name].append(part)
        self._lines.append(np.array(lines, dtype=np.int64))
        self._num_rows += len(lines)
        if self._unique in places and _has_duplicate(self._parts[self._unique][-1]):
            self._fail_duplicate(self._unique)  # at once: the stream may be endless

    def table(self) -> Table:
        if not self._num_rows:
            raise BadTable(self._source, 0, "no rows; a table needs a row per device.")
        columns: dict[str, np.ndarray] = {}
        for name, column in self._header.known.items():
            if name in self._header.present:
                columns[name] = self._merged(name)
            elif column.default is not None:
                columns[name] = column.filled(self._num_rows)
        if self._unique in columns and _has_duplicate(columns[self._unique]):
            self._fail_duplicate(self._unique)
        return Table(self._source, columns, np.concatenate(self._lines), self._header.ignored(), self._is_list)

    def _merged(self, name: str) -> np.ndarray:
        parts = self._parts[name]
        if len({part.dtype for part in parts}) > 1:  # labels: integers in some chunks only
            texts = [part if self._is_list or part.dtype == object else part.astype(str) for part in parts]
            parts = [part.astype(object) for part in texts]
        return np.concatenate(parts)

    def _fail_duplicate(self, name: str) -> NoReturn:
        lines = np.concatenate(self._lines)
        seen: dict[Any, int] = {}
        for row, label in enumerate(self._merged(name).tolist()):
            first = seen.setdefault(label, row)
            if first != row:
                other = f"device {first + 1}" if self._is_list else f"line {lines[first]}"
                problem = f"{name} {shown(label)} is already on {other}; each may occur once"
                raise row_error(self._source, int(lines[row]), row, problem, is_list=self._is_list)
        raise AssertionError("no duplicate")


def _has_duplicate(values: np.ndarray) -> bool:
    if values.dtype == object:
        return len(set(values.tolist())) < len(values)
    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())
