"""Reads the rows of a CSV text, which may hold quoted cells over several lines."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from airprune.errors import BadTable
from airprune.tables.columns import Refused
from airprune.tables.header import Header
from airprune.tables.source import MAX_LINE_CHARS


def csv_chunks(
    blocks: Iterable[str], source: str, header: Header, delimiter: str
) -> Iterator[tuple[np.ndarray, dict[str, Sequence[str]]]]:
    """Yields many rows at a time: the lines on which they start, and the cells of each known column."""
    places: dict[str, int] = {}
    width = 0
    for lines, cells in _runs(_line_blocks(blocks, source), source, delimiter):
        if not width:
            try:
                places = header.places(column[0] for column in cells)
            except Refused as refused:
                raise BadTable(source, int(lines[0]), f"{header.said(refused)}.") from None
            width = len(cells)
            lines, cells = lines[1:], [column[1:] for column in cells]
        if len(cells) != width:
            num_cells = f"{len(cells)} cell" + "s" * (len(cells) != 1)
            raise BadTable(source, int(lines[0]), f"{num_cells} where the header has {width}.")
        if len(lines):
            yield lines, {name: cells[place] for name, place in places.items()}
    if not width:
        raise BadTable(source, 0, f"empty; it needs a header with {header.required} and a row per device.")


def _line_blocks(blocks: Iterable[str], source: str) -> Iterator[list[str]]:
    """Yields the whole lines of each block; refuses a line without end."""
    num_lines = 0
    rest = ""
    for block in blocks:
        lines = list(io.StringIO(rest + block))  # splits at \n only
        if max(map(len, lines), default=0) > MAX_LINE_CHARS:
            line = num_lines + 1 + next(i for i, line in enumerate(lines) if len(line) > MAX_LINE_CHARS)
            raise BadTable(source, line, f"longer than {MAX_LINE_CHARS:,} characters; this is not a table.")
        rest = lines.pop() if lines and not lines[-1].endswith("\n") else ""
        num_lines += len(lines)
        if lines:
            yield lines
    if rest:
        yield [rest]


def _runs(blocks: Iterable[list[str]], source: str, delimiter: str) -> Iterator[tuple[np.ndarray, list[Sequence[str]]]]:
    """Yields runs of rows with equally many cells: the lines on which they start, and the cells by column."""
    start = 1
    lines: list[str] = []  # of a row that goes on in the next block
    for block in blocks:
        if not lines and (cells := _regular_cells(block, delimiter)):
            yield np.arange(start, start + len(block)), cells
            start += len(block)
            continue
        lines += block
        first = start
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
        starts: list[int] = []
        rows: list[list[str]] = []
        fault = None
        try:
            for row in reader:
                if len(row) > 1 or "".join(row).strip():  # not a blank line
                    starts.append(start)
                    rows.append(row)
                start = first + reader.line_num
        except csv.Error as error:  # perhaps only a quote that the next block closes
            fault = error
        for _, run in itertools.groupby(zip(starts, rows, strict=True), key=lambda item: len(item[1])):
            run_starts, run_rows = zip(*run, strict=True)
            yield np.array(run_starts), list(zip(*run_rows, strict=True))
        lines = lines[start - first :] if fault else []
        if sum(map(len, lines)) > MAX_LINE_CHARS:
            break
    if lines:
        raise BadTable(source, start, f"broken CSV in the row that starts here ({fault}); check its quotes.")


def _regular_cells(lines: list[str], delimiter: str) -> list[Sequence[str]]:
    """Returns the cells by column if nothing is quoted and all rows have equally many; several times as fast."""
    text = "".join(lines).removesuffix("\n")
    widths = set() if '"' in text else {line.count(delimiter) + 1 for line in lines}
    if len(widths) != 1 or widths == {1}:
        return []
    cells = text.replace("\n", delimiter).split(delimiter)
    (width,) = widths
    return [cells[place::width] for place in range(width)]
