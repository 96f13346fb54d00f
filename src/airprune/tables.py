"""Device tables: read as CSV or JSON with the line of every fault, written atomically as CSV.

    source ──► blocks of text ──► rows (CSV | JSON) ──► chunks ──► one array per column

Every stage is bounded: a block is 256 KiB, a line or a JSON object about 64 KiB, a chunk some thousand rows.
So `/dev/zero`, a terabyte without a newline or an endless row is refused after a block or two, and a good
table costs little more memory than its arrays.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import itertools
import json
import math
import os
import re
import secrets
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn, TextIO

import numpy as np

from airprune.errors import BadTable, InvalidValue, UsageError, WorkFailed

BLOCK_BYTES = 256 * 1024
MAX_LINE_CHARS = 64 * 1024
MAX_BLANK_CHARS = 256 * 1024
MAX_LABEL_CHARS = 256
CHUNK_CELLS = 20_000
WRITE_CHUNK_ROWS = 50_000

# float() also takes 1_000, nan and the digits of other scripts; a table may not.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_JSON_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column that a table may or must have.

    Attributes:
      name: lower case; headers are compared without regard to case.
      kind: `label` names a device or an edge, `number` is a finite float.
      default: value of an absent column or an empty cell when not required. Without one, an absent column
        stays absent and an empty number is NaN.
      minimum, maximum: inclusive bounds; `above` and `below` are exclusive ones.
      whole: only whole numbers.
      explanation: a few words with the unit, added to messages.
    """

    name: str
    kind: Literal["label", "number"] = "number"
    required: bool = False
    default: float | str | None = None
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    whole: bool = False
    explanation: str = ""

    def __post_init__(self) -> None:
        if self.kind == "label" and not self.required and self.default is None:
            raise InvalidValue(f"Column {self.name}", "must be required or have a default", "neither")

    def accepts(self, values: Any) -> Any:
        """Whether each value is finite and keeps the rule; elementwise on an array, or on one float."""
        fine = abs(values) < math.inf  # false for NaN as well
        if self.minimum is not None:
            fine = fine & (values >= self.minimum)
        if self.above is not None:
            fine = fine & (values > self.above)
        if self.maximum is not None:
            fine = fine & (values <= self.maximum)
        if self.below is not None:
            fine = fine & (values < self.below)
        if self.whole:
            fine = fine & (np.floor(values) == values)
        return fine

    def rule_broken_by(self, value: float) -> str:
        """The rule that a refused value breaks, e.g. `must be > 0`."""
        if not math.isfinite(value):
            return "must be a finite number"
        if self.whole and value != math.floor(value):
            return "must be a whole number"
        bounds = ((">=", self.minimum), (">", self.above), ("<=", self.maximum), ("<", self.below))
        return "must be " + " and ".join(f"{sign} {bound:.12g}" for sign, bound in bounds if bound is not None)


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
        return _row_error(self.source, int(self.line[row]), row, problem, is_list=self.is_list)


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
    stream, name, close = _open(source)
    try:
        blocks = _text_blocks(stream, name)
        first = next(blocks, "")
        chunks = _Chunks(name, columns, unique=unique, max_rows=max_rows)
        if first.lstrip()[:1] in ("[", "{"):
            chunks.is_list = True
            text = _JsonText(_capped(itertools.chain([first], blocks), name, max_bytes), chunks.fail)
            _read_json(text, chunks)
        else:
            header = (first.strip().splitlines() or [""])[0]
            delimiter = next((mark for mark in ",;\t" if mark in header), ",")
            _read_csv(_CsvText(itertools.chain([first], blocks), delimiter, chunks.fail), chunks)
        return chunks.table()
    except OSError as error:
        raise BadTable(name, 0, f"cannot be read: {error.strerror or error}.") from error
    finally:
        if close:
            stream.close()


# From bytes to text


def _open(source: Path | str | BinaryIO) -> tuple[BinaryIO, str, bool]:
    """The stream, its name in messages and whether it is ours to close."""
    if source == "-":
        if sys.stdin is None:
            raise BadTable("standard input", 0, "is closed; give a file name instead.")
        return sys.stdin.buffer, "standard input", False
    if not isinstance(source, str | Path):
        name = getattr(source, "name", None)
        return source, _plain(name) if isinstance(name, str) else "the stream", False
    name = _plain(str(source))
    try:
        return Path(source).open("rb"), name, True
    except FileNotFoundError as error:
        raise BadTable(name, 0, "there is no such file; use - to read standard input.") from error
    except IsADirectoryError as error:
        raise BadTable(name, 0, "is a folder, not a table.") from error
    except PermissionError as error:
        raise BadTable(name, 0, "may not be read: permission denied.") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise BadTable(name, 0, f"cannot be opened: {getattr(error, 'strerror', None) or error}.") from error


def _text_blocks(stream: BinaryIO, source: str) -> Iterator[str]:
    """The stream as text, about `BLOCK_BYTES` at a time; refuses what is not text."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    line = 1
    num_blank = 0
    while True:
        block = b""
        while len(block) < BLOCK_BYTES and (piece := stream.read(BLOCK_BYTES - len(block))):
            block += piece
        if (nul := block.find(b"\0")) >= 0:
            at = line + block.count(b"\n", 0, nul)
            raise BadTable(source, at, "a NUL byte, so this is not text; save the table as CSV in UTF-8.")
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            at = line + error.object.count(b"\n", 0, error.start)
            byte = error.object[error.start]
            raise BadTable(source, at, f"byte 0x{byte:02x} is not UTF-8; save the table as UTF-8.") from error
        num_blank = num_blank + len(text) if text.isspace() else 0
        if num_blank >= MAX_BLANK_CHARS:
            raise BadTable(source, line, f"{MAX_BLANK_CHARS // 1024} KiB of blank lines; this is not a table.")
        line += block.count(b"\n")
        if text:
            yield text
        if not block:
            return


def _capped(blocks: Iterable[str], source: str, max_bytes: int) -> Iterator[str]:
    size = 0
    for text in blocks:
        size += len(text) if text.isascii() else len(text.encode())
        if size > max_bytes:
            raise BadTable(source, 0, f"longer than {max_bytes:,} bytes; use CSV for a table of this size.")
        yield text


# From text to rows


class _CsvText:
    """The rows of a CSV text, a block at a time."""

    def __init__(self, blocks: Iterator[str], delimiter: str, fail: Callable[[int, str], NoReturn]) -> None:
        self.fail = fail
        self._delimiter = delimiter
        self._texts = self._whole_lines(blocks)
        self._num_lines = 0  # handed out so far
        self._row_end = 0  # line on which the last complete row ended

    def _whole_lines(self, blocks: Iterator[str]) -> Iterator[str]:
        """The blocks cut at ends of lines, all of which become a newline."""
        rest = ""
        line = 1
        for block in itertools.chain(blocks, [None]):
            text = rest + ("\n" if block is None else block)
            # A \r at the very end may be half of \r\n, so it waits for the next block.
            cut = max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1
            text, rest = text[:cut], text[cut:]
            if "\r" in text:
                text = text.replace("\r\n", "\n").replace("\r", "\n")
            lines = [*text.split("\n")[:-1], rest]
            if max(map(len, lines)) > MAX_LINE_CHARS:
                line += next(i for i, content in enumerate(lines) if len(content) > MAX_LINE_CHARS)
                self.fail(line, f"longer than {MAX_LINE_CHARS:,} characters; this is not a table.")
            line += len(lines) - 1
            if text:
                yield text

    def chunks(self) -> Iterator[tuple[Sequence[int] | np.ndarray, list[Sequence[str]]]]:
        """First the header alone, then many rows at a time: the line of each and the cells by column."""
        width = 0
        for text in self._texts:
            regular = self._regular_cells(text, width)
            if regular is not None:
                first = self._num_lines + 1
                self._num_lines = self._row_end = self._num_lines + len(regular[0])
                yield np.arange(first, self._num_lines + 1), regular
                continue
            rows: list[list[str]] = []
            lines: list[int] = []
            for line, row in self._rows(text):
                if not width:
                    width = len(row)
                    yield [line], [[name] for name in row]
                elif len(row) == width:
                    rows.append(row)
                    lines.append(line)
                else:
                    if rows:  # a fault further up comes first
                        yield lines, list(zip(*rows, strict=True))
                    cells = f"{len(row)} cell" + "s" * (len(row) != 1)
                    self.fail(line, f"{cells} where the header has {width}.")
            if rows:
                yield lines, list(zip(*rows, strict=True))

    def _regular_cells(self, text: str, width: int) -> list[Sequence[str]] | None:
        """The cells by column if nothing is quoted and each line has `width` cells; twice as fast."""
        if width < 2 or '"' in text:
            return None
        raw = np.frombuffer(text.encode(), dtype=np.uint8)
        ends = raw == ord("\n")
        marks = ends[ends | (raw == ord(self._delimiter))]
        if marks.sum() * width != marks.size or not marks[width - 1 :: width].all():
            return None
        cells = text[:-1].replace("\n", self._delimiter).split(self._delimiter)
        return [cells[column::width] for column in range(width)]

    def _rows(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """The rows that start in `text` and are not blank, each with the line on which it starts."""
        lines_before = self._num_lines
        reader = csv.reader(self._lines(text), delimiter=self._delimiter, skipinitialspace=True, strict=True)
        try:
            for row in reader:
                start, self._row_end = self._row_end + 1, lines_before + reader.line_num
                if len(row) > 1 or (row and row[0].strip()):
                    yield start, row
        except csv.Error as error:
            self.fail(self._row_end + 1, f"broken CSV in the row that starts here ({error}); check its quotes.")

    def _lines(self, text: str) -> Iterator[str]:
        """The lines of `text`, and of the texts after it while a quoted cell is open."""
        while text:
            lines = list(io.StringIO(text))
            self._num_lines += len(lines)
            yield from lines
            if self._row_end == self._num_lines:
                return
            if self._row_end < self._num_lines - len(lines) and len(text) > MAX_LINE_CHARS:
                self.fail(self._row_end + 1, "the row that starts here has no end; is a quote not closed?")
            text = next(self._texts, "")


def _read_csv(text: _CsvText, chunks: _Chunks) -> None:
    rows = text.chunks()
    header = next(rows, None)
    if header is None:
        chunks.fail(0, f"empty; it needs a header with {chunks.required_names()} and a row per device.")
    places = chunks.places([names[0] for names in header[1]], int(header[0][0]))
    for lines, cells in rows:
        chunks.add(lines, {name: cells[place] for name, place in places.items()})


class _JsonText:
    """A JSON text read piece by piece, so that neither it nor its objects are ever whole in memory."""

    def __init__(self, blocks: Iterator[str], fail: Callable[[int, str], NoReturn]) -> None:
        self.line = 1
        self.fail = fail
        self._blocks = blocks
        self._text = ""
        self._at = 0
        # Objects become tuples of pairs: a repeated key is still seen, and arrays stay lists.
        self._decoder = json.JSONDecoder(object_pairs_hook=tuple)

    def _move(self, to: int) -> None:
        self.line += self._text.count("\n", self._at, to)
        self._at = to

    def _more(self) -> bool:
        block = next(self._blocks, "")
        self._text = self._text[self._at :] + block
        self._at = 0
        return bool(block)

    def peek(self) -> str:
        """The next character that is not space, empty at the end."""
        while True:
            space = _JSON_SPACE.match(self._text, self._at)
            self._move(space.end() if space else self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, expected: str) -> str:
        """Steps over the next character, which must be one of `expected`."""
        got = self.peek()
        if not got or got not in expected:
            found = repr(got) if got else "the end"
            self.fail(self.line, f"broken JSON: expected {' or '.join(expected)}, got {found}.")
        self._move(self._at + 1)
        return got

    def value(self) -> Any:
        """Steps over the next value and returns it."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                size = end - self._at
                # A number near the end of the block, as in 1.5e-, may go on in the next one.
                if end + 2 < len(self._text) or not self._more():
                    self._move(self._at + size)
                    return value
            except json.JSONDecodeError as error:
                size = len(self._text) - self._at
                if size > MAX_LINE_CHARS and error.pos - self._at > MAX_LINE_CHARS:
                    self.fail(self.line, f"one value has more than {MAX_LINE_CHARS:,} characters.")
                line = self.line + self._text.count("\n", self._at, error.pos)
                if size > MAX_LINE_CHARS or not self._more():
                    self.fail(line, f"broken JSON: {error.msg}.")
            except RecursionError:
                self.fail(self.line, "nested too deeply; a device is a flat object.")
            except ValueError as error:  # an integer with thousands of digits
                self.fail(self.line, f"broken JSON: {error}.")

    def objects(self) -> Iterator[tuple[int, Any]]:
        """The devices and the line on which each starts."""
        shape = 'JSON must be a list of devices or {"devices": [...]}'
        if self.peek() == "[":
            yield from self._array()
        else:
            self.take("{")
            seen = False
            for num_keys in itertools.count():
                if self.peek() == "}":
                    break
                if num_keys == 1000:
                    self.fail(self.line, f"{shape}; this object has too many other keys.")
                key = self.value()
                self.take(":")
                if key == "devices":
                    if seen or self.peek() != "[":
                        self.fail(self.line, f"{shape}, with one list.")
                    seen = True
                    yield from self._array()
                else:
                    self.value()
                if self.peek() != "}":
                    self.take(",")
            if not seen:
                self.fail(self.line, f"{shape}; this object has no devices.")
            self.take("}")
        if self.peek():
            self.fail(self.line, "broken JSON: text after the end.")

    def _array(self) -> Iterator[tuple[int, Any]]:
        self.take("[")
        if self.peek() == "]":
            self.take("]")
            return
        while True:
            self.peek()
            yield self.line, self.value()
            if self.take(",]") == "]":
                return


def _read_json(text: _JsonText, chunks: _Chunks) -> None:
    names = [column.name for column in chunks.columns]
    places_of: dict[tuple[str, ...], list[int | None]] = {}
    chunk: list[list[Any]] = []
    lines: list[int] = []

    def flush() -> None:
        if chunk:
            chunks.add(lines, dict(zip(names, zip(*chunk, strict=True), strict=True)))
            chunk.clear()
            lines.clear()

    for line, pairs in text.objects():
        number = chunks.num_rows + len(chunk)
        if not isinstance(pairs, tuple):
            raise _row_error(chunks.source, line, number, f"must be an object, got {_shown(pairs)}", is_list=True)
        keys, values = zip(*pairs, strict=True) if pairs else ((), ())
        if keys not in places_of:
            if len(places_of) >= 1000:  # a table has a handful of shapes
                places_of.clear()
            found = chunks.places(keys, line, row=number)
            places_of[keys] = [found.get(name) for name in names]
        chunk.append([None if place is None else values[place] for place in places_of[keys]])
        lines.append(line)
        if len(chunk) * max(1, len(names)) >= CHUNK_CELLS:
            flush()
    flush()


# From rows to columns


class _Refused(Exception):
    """A cell breaks its rule; the caller knows the line."""


class _Chunks:
    """Gathers the columns chunk by chunk and is the one who complains."""

    def __init__(self, source: str, columns: Sequence[Column], *, unique: str | None, max_rows: int) -> None:
        self.source = source
        self.columns = columns
        self.is_list = False
        self.num_rows = 0
        self._unique = unique
        self._max_rows = max_rows
        self._lines: list[np.ndarray] = []
        self._parts: dict[str, list[np.ndarray]] = {column.name: [] for column in columns}
        self._present: set[str] = set()
        self._unknown: dict[str, None] = {}

    def fail(self, line: int, problem: str) -> NoReturn:
        raise BadTable(self.source, line, problem)

    def required_names(self) -> str:
        return ", ".join(column.name for column in self.columns if column.required)

    def places(self, names: Sequence[str], line: int, row: int | None = None) -> dict[str, int]:
        """Where each known column stands among `names`, a header or the keys of one JSON object."""

        def fail(problem: str) -> NoReturn:
            raise _row_error(self.source, line, row or 0, problem, is_list=row is not None)

        place: dict[str, int] = {}
        for index, name in enumerate(name.strip().lower() for name in names):
            if name in place:
                fail(f"the column {_shown(name)} occurs twice")
            if name:  # spreadsheets leave unnamed columns at the end
                place[name] = index
        known = {column.name: column for column in self.columns}
        missing = [name for name in known if known[name].required and name not in place]
        if missing:
            others = [name[:64] for name in itertools.islice(place, 200) if name not in known]
            near = difflib.get_close_matches(missing[0], others, n=1)
            hint = f"; perhaps rename {_shown(near[0])} to {missing[0]}" if near else ""
            meaning = ""
            if len(missing) == 1 and known[missing[0]].explanation:
                meaning = f" ({known[missing[0]].explanation})"
            fail(f"missing {', '.join(missing)}{meaning}; found {_listed(place)}{hint}")
        self._present.update(name for name in known if name in place)
        if len(self._unknown) < 1000:
            self._unknown.update(dict.fromkeys(name for name in place if name not in known))
        return {name: place[name] for name in known if name in place}

    def add(self, lines: Sequence[int] | np.ndarray, cells: dict[str, Sequence[Any]]) -> None:
        """Takes the cells of some rows: strings from CSV, any value or None (absent) from JSON."""
        if self.num_rows + len(lines) > self._max_rows:
            line = lines[self._max_rows - self.num_rows]
            self.fail(int(line), f"more than {self._max_rows:,} rows; split the table.")
        for column in self.columns:
            if column.name in cells:
                convert = _labels if column.kind == "label" else _numbers
                try:
                    part = convert(cells[column.name], column, text=not self.is_list)
                except _Refused as refused:
                    index, problem = refused.args
                    row = self.num_rows + index
                    raise _row_error(self.source, int(lines[index]), row, problem, is_list=self.is_list) from None
                self._parts[column.name].append(part)
        self._lines.append(np.array(lines, dtype=np.int64))
        self.num_rows += len(lines)
        if self._unique in cells and _has_duplicate(self._parts[self._unique][-1]):
            self._fail_duplicate(self._unique)  # at once: the stream may be endless

    def table(self) -> Table:
        if not self.num_rows:
            self.fail(0, "no rows; a table needs a row per device.")
        values: dict[str, np.ndarray] = {}
        for column in self.columns:
            if column.name in self._present:
                values[column.name] = self._merged(column.name)
            elif column.default is not None:
                kind: Any = object if isinstance(column.default, str) else None
                kind = np.float64 if column.kind == "number" else kind
                values[column.name] = np.full(self.num_rows, column.default, dtype=kind)
        if self._unique in values and _has_duplicate(values[self._unique]):
            self._fail_duplicate(self._unique)
        absent = [column.name for column in self.columns if column.name not in self._present]
        return Table(
            source=self.source,
            columns=values,
            line=np.concatenate(self._lines),
            ignored=tuple(_with_nearest(name, absent) for name in itertools.islice(self._unknown, 20)),
            is_list=self.is_list,
        )

    def _merged(self, name: str) -> np.ndarray:
        parts = self._parts[name]
        if len({part.dtype for part in parts}) > 1:  # labels: integers in some chunks only
            texts = [part if self.is_list or part.dtype == object else part.astype(str) for part in parts]
            parts = [part.astype(object) for part in texts]
        return np.concatenate(parts)

    def _fail_duplicate(self, name: str) -> NoReturn:
        lines = np.concatenate(self._lines)
        seen: dict[Any, int] = {}
        for row, label in enumerate(self._merged(name).tolist()):
            first = seen.setdefault(label, row)
            if first != row:
                other = f"device {first + 1}" if self.is_list else f"line {lines[first]}"
                problem = f"{name} {_shown(label)} is already on {other}; each may occur once"
                raise _row_error(self.source, int(lines[row]), row, problem, is_list=self.is_list)
        raise AssertionError("no duplicate")


def _numbers(cells: Sequence[Any], column: Column, *, text: bool) -> np.ndarray:
    values = _plain_numbers(cells, text=text)
    if values is None or not column.accepts(values).all():
        values = np.empty(len(cells))
        for index, cell in enumerate(cells):
            values[index] = _number(index, cell, column, text=text)
    return values


def _plain_numbers(cells: Sequence[Any], *, text: bool) -> np.ndarray | None:
    """All cells at once, or None if one needs a closer look."""
    if text:
        joined = "".join(cells)
        if "_" in joined or not joined.isascii():
            return None
    elif not set(map(type, cells)) <= {int, float}:
        return None
    try:
        return np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
    except (ValueError, OverflowError):
        return None


def _number(index: int, cell: Any, column: Column, *, text: bool) -> float:
    if text:
        cell = cell.strip() or None
    if cell is None:
        if column.required:
            raise _Refused(index, f"{column.name} is empty")
        return math.nan if column.default is None else float(column.default)
    readable = bool(_NUMBER.fullmatch(cell)) if text else type(cell) in (int, float)
    try:
        value = float(cell) if readable else math.nan
    except OverflowError:
        value = math.inf
    if column.accepts(value):
        return value
    got = _clipped(str(cell)) if readable else _shown(cell)
    hint = " (write the decimals after a point)" if text and "," in cell else ""
    meaning = f" ({column.explanation})" if column.explanation else ""
    raise _Refused(index, f"{column.name}{meaning} {column.rule_broken_by(value)}, got {got}{hint}")


def _labels(cells: Sequence[Any], column: Column, *, text: bool) -> np.ndarray:
    types = set(map(type, cells))
    if types == {int}:
        try:
            return np.array(cells, dtype=np.int64)
        except OverflowError:
            pass
    clean = list(map(str.strip, cells)) if types == {str} else []
    if not (clean and all(clean) and max(map(len, clean)) <= MAX_LABEL_CHARS and "".join(clean).isprintable()):
        clean = [_label(index, cell, column) for index, cell in enumerate(cells)]
    integers = _canonical_integers(clean) if text else None
    if integers is not None:
        return integers
    if len(distinct := dict(zip(clean, clean, strict=True))) < len(clean) and text:
        clean = [distinct[label] for label in clean]  # one string per edge, not one per device
    labels = np.empty(len(clean), dtype=object)
    labels[:] = clean
    return labels


def _canonical_integers(labels: list[str]) -> np.ndarray | None:
    """The labels as int64 if that loses nothing: 007, +7 and 10**20 stay text."""
    try:
        values = list(map(int, labels))
        return np.array(values, dtype=np.int64) if list(map(str, values)) == labels else None
    except (ValueError, OverflowError):
        return None


def _label(index: int, cell: Any, column: Column) -> Any:
    if type(cell) is int:
        if not -(2**63) <= cell < 2**63:
            raise _Refused(index, f"{column.name} must fit in 64 bits, got {_shown(cell)}; write it in quotes")
        return cell
    if cell is not None and type(cell) is not str:
        raise _Refused(index, f"{column.name} must be an integer or a string, got {_shown(cell)}")
    label = (cell or "").strip()
    if not label:
        if column.required or column.default is None:
            raise _Refused(index, f"{column.name} is empty")
        return column.default if cell is None else str(column.default)
    if len(label) > MAX_LABEL_CHARS:
        raise _Refused(index, f"{column.name} must have at most {MAX_LABEL_CHARS} characters, got {_shown(label)}")
    # Cs: half a surrogate pair, which JSON can spell but no file can hold.
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in label):
        raise _Refused(index, f"{column.name} must have no control characters, got {_shown(label)}")
    return label


def _has_duplicate(values: np.ndarray) -> bool:
    if values.dtype == object:
        return len(set(values.tolist())) < len(values)
    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())


# Words


def _row_error(source: str, line: int, row: int, problem: str, *, is_list: bool) -> BadTable:
    return BadTable(source, line, f"{problem} (device {row + 1} of the list)." if is_list else f"{problem}.")


def _clipped(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def _shown(value: object) -> str:
    """A short, harmless picture of a value: control characters escaped."""
    if isinstance(value, str):
        return repr(_clipped(value))
    if isinstance(value, tuple):
        return "an object"
    return "a list" if isinstance(value, list) else _clipped(json.dumps(value))


def _plain(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    text = ", ".join(_plain(_clipped(name)) for name in names[:12]) or "nothing"
    return f"{text} and {len(names) - 12} more" if len(names) > 12 else text


def _with_nearest(name: str, absent: Sequence[str]) -> str:
    near = difflib.get_close_matches(name[:64], absent, n=1)
    shown = _plain(_clipped(name))
    return f"{shown} (did you mean {near[0]}?)" if near else shown


# Writing


def write_csv_atomic(path: Path | str, header: Sequence[str], columns: Sequence[np.ndarray | Sequence[Any]]) -> None:
    """Writes columns of equal length as CSV: the whole file appears, or the old one stays.

    Floats take the fewest digits that read back to the same value; NaN and None become empty cells.
    """
    lengths = [len(column) for column in columns]
    if len(header) != len(columns) or len(set(lengths)) > 1:
        raise InvalidValue("columns", f"must be {len(header)} of equal length", f"lengths {lengths}")
    with _atomic(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for start in range(0, max(lengths, default=0), WRITE_CHUNK_ROWS):
            cells = [_cells(column[start : start + WRITE_CHUNK_ROWS]) for column in columns]
            writer.writerows(zip(*cells, strict=True))


def write_text_atomic(path: Path | str, text: str) -> None:
    """Writes a text in UTF-8: the whole file appears, or the old one stays."""
    with _atomic(path) as file:
        file.write(text)


def _cells(column: np.ndarray | Sequence[Any]) -> list[Any]:
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "iub" or (column.dtype.kind == "f" and not np.isnan(column).any()):
            return column.tolist()
        column = column.tolist()
    return ["" if cell != cell else cell for cell in column]  # only NaN differs from itself


@contextmanager
def _atomic(path: Path | str) -> Iterator[TextIO]:
    """A new file beside `path` that takes its name on success and vanishes on failure."""
    shown = _plain(str(path))
    try:
        target = Path(path).resolve()  # a link stays a link
        if target.exists() and not target.is_file():
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
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except OSError as error:  # a full disk, say
        raise WorkFailed(f"{shown} was not written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
