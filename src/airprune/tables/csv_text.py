"""The rows of a CSV text, which may hold quoted cells over several lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from airprune.errors import BadTable
from airprune.tables.source import MAX_LINE_CHARS


def delimiter_of(text: str) -> str:
    """A comma, or a semicolon or tab if the first line has no comma."""
    header = text.lstrip().partition("\n")[0]
    return next((mark for mark in ",;\t" if mark in header), ",")


def csv_rows(blocks: Iterable[str], source: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows that are not blank, each with the line on which it starts."""
    row_end = 0  # line on which the last complete row ended

    def lines() -> Iterator[str]:
        num_lines = 0
        num_open = 0  # characters in blocks in which no row ended
        for block in _line_blocks(blocks, source):
            yield from block
            num_open = num_open + sum(map(len, block)) if row_end <= num_lines else 0
            if num_open > MAX_LINE_CHARS:
                problem = "the row that starts here has no end; is a quote not closed?"
                raise BadTable(source, row_end + 1, problem)
            num_lines += len(block)

    width = 0
    reader = csv.reader(lines(), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row in reader:
            start, row_end = row_end + 1, reader.line_num
            if len(row) < 2 and not "".join(row).strip():
                continue
            width = width or len(row)
            if len(row) != width:
                cells = f"{len(row)} cell" + "s" * (len(row) != 1)
                raise BadTable(source, start, f"{cells} where the header has {width}.")
            yield start, row
    except csv.Error as error:
        problem = f"broken CSV in the row that starts here ({error}); check its quotes."
        raise BadTable(source, row_end + 1, problem) from error


def _line_blocks(blocks: Iterable[str], source: str) -> Iterator[list[str]]:
    """The lines of each block, a line cut by its end joined with the rest; refuses a line without end."""
    num_lines = 0
    rest = ""
    for block in blocks:
        lines = list(io.StringIO(rest + block))  # splits at \n only
        longest = max(lines, key=len)
        if len(longest) > MAX_LINE_CHARS:
            line = num_lines + lines.index(longest) + 1
            raise BadTable(source, line, f"longer than {MAX_LINE_CHARS:,} characters; this is not a table.")
        rest = "" if lines[-1].endswith("\n") else lines.pop()
        num_lines += len(lines)
        yield lines
    if rest:
        yield [rest]
