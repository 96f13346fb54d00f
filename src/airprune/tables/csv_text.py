"""The rows of a CSV text, which may hold quoted cells over several lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from airprune.errors import BadTable
from airprune.tables.columns import Refused
from airprune.tables.header import Header
from airprune.tables.source import MAX_LINE_CHARS


def csv_chunks(
    blocks: Iterable[str], source: str, header: Header, delimiter: str
) -> Iterator[tuple[np.ndarray, dict[str, Sequence[str]]]]:
    """The rows of each block: the lines on which they start, and the cells of each known column."""
    places: dict[str, int] = {}
    width = 0
    for lines, rows in _parsed(_line_blocks(blocks, source), source, delimiter):
        if width < 2 or set(map(len, rows)) != {width}:
            kept = [index for index, row in enumerate(rows) if len(row) > 1 or "".join(row).strip()]
            lines, rows = lines[kept], [rows[index] for index in kept]
        if rows and not width:
            width = len(rows[0])
            try:
                places = header.places(rows[0])
            except Refused as refused:
                raise BadTable(source, int(lines[0]), f"{refused.problem}.") from None
            lines, rows = lines[1:], rows[1:]
        wrong = next((index for index, row in enumerate(rows) if len(row) != width), len(rows))
        if wrong:
            cells = list(zip(*rows[:wrong], strict=True))
            yield lines[:wrong], {name: cells[place] for name, place in places.items()}
        if wrong < len(rows):
            num_cells = f"{len(rows[wrong])} cell" + "s" * (len(rows[wrong]) != 1)
            raise BadTable(source, int(lines[wrong]), f"{num_cells} where the header has {width}.")
    if not width:
        raise BadTable(source, 0, f"empty; it needs a header with {header.required} and a row per device.")


def _line_blocks(blocks: Iterable[str], source: str) -> Iterator[list[str]]:
    """The whole lines of each block; refuses a line without end."""
    num_lines = 0
    rest = ""
    for block in blocks:
        lines = list(io.StringIO(rest + block))  # splits at \n only
        longest = max(lines, key=len, default="")
        if len(longest) > MAX_LINE_CHARS:
            line = num_lines + lines.index(longest) + 1
            raise BadTable(source, line, f"longer than {MAX_LINE_CHARS:,} characters; this is not a table.")
        rest = lines.pop() if lines and not lines[-1].endswith("\n") else ""
        num_lines += len(lines)
        yield lines
    yield [rest]


def _parsed(blocks: Iterable[list[str]], source: str, delimiter: str) -> Iterator[tuple[np.ndarray, list[list[str]]]]:
    """The rows that end in each block and the lines on which they start; refuses a row without end."""
    start = 1
    lines: list[str] = []
    fault = None
    for block in blocks:
        lines += block
        rows: list[list[str]] = []
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            for row in reader:
                rows.append(row)
        except csv.Error as error:  # perhaps only a quote that the next block closes
            fault = error
        heights = np.ones(len(rows), dtype=np.int64)
        if reader.line_num > len(rows):
            heights[:] = [1 + sum(cell.count("\n") for cell in row) for row in rows]
        ends = np.cumsum(heights)
        yield start + ends - heights, rows
        num_done = int(heights.sum())
        start += num_done
        lines = lines[num_done:]
        if sum(map(len, lines)) > MAX_LINE_CHARS:
            break
    if lines:
        raise BadTable(source, start, f"broken CSV in the row that starts here ({fault}); check its quotes.")
