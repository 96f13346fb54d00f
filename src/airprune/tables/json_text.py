"""Reads the rows of a JSON text piece by piece, so that it is never whole in memory."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from airprune.errors import BadTable
from airprune.tables.columns import Refused, cell_shown, row_error
from airprune.tables.columns import refused as refused_value
from airprune.tables.header import Header
from airprune.tables.source import MAX_LINE_CHARS

CHUNK_ROWS = 2_000
MAX_OTHER_KEYS = 1_000

_SPACE = re.compile(r"[ \t\n]*")
_SHAPE = 'JSON must be a list of devices or {"devices": [...]}'


def json_chunks(
    blocks: Iterator[str], source: str, header: Header
) -> Iterator[tuple[np.ndarray, dict[str, Sequence[Any]]]]:
    """Yields many devices at a time: the lines on which they start, and the values of each column, None if absent."""
    rows = _rows(blocks, source, header)
    while chunk := list(itertools.islice(rows, CHUNK_ROWS)):
        lines, values = zip(*chunk, strict=True)
        yield np.array(lines), dict(zip(header.known, zip(*values, strict=True), strict=True))


def _rows(blocks: Iterator[str], source: str, header: Header) -> Iterator[tuple[int, list[Any]]]:
    @functools.lru_cache(maxsize=1000)  # a table has a handful of shapes
    def places_of(keys: tuple[str, ...]) -> list[int | None]:
        places = header.places(keys)
        return [places.get(name) for name in header.known]

    for row, (line, pairs) in enumerate(_JsonText(blocks, source).devices()):
        try:
            if not isinstance(pairs, tuple):
                raise refused_value("must be an object", cell_shown(pairs), 0)
            keys, values = zip(*pairs, strict=True) if pairs else ((), ())
            yield line, [None if place is None else values[place] for place in places_of(keys)]
        except Refused as refused:
            raise row_error(source, line, row, header.said(refused), is_list=True) from None


class _JsonText:
    """A position in a JSON text, from which values are taken one by one."""

    def __init__(self, blocks: Iterator[str], source: str) -> None:
        self._source = source
        self._blocks = blocks
        self._text = ""
        self._at = 0
        self._line = 1
        # Objects become tuples of pairs: a repeated key is still seen, and arrays stay lists.
        self._decoder = json.JSONDecoder(object_pairs_hook=tuple)

    def devices(self) -> Iterator[tuple[int, Any]]:
        """Yields the values in the list of devices and the line on which each starts."""
        if self._peek() == "[":
            yield from self._list()
        else:
            num_lists = 0
            for num_keys, _ in enumerate(self._items("{}")):
                if num_keys == MAX_OTHER_KEYS:
                    self._fail(f"{_SHAPE}; this object has too many other keys.")
                key = self._value()
                self._take(":")
                if key != "devices":
                    self._value()
                    continue
                num_lists += 1
                if num_lists > 1 or self._peek() != "[":
                    self._fail(f"{_SHAPE}, with one list.")
                yield from self._list()
            if not num_lists:
                self._fail(f"{_SHAPE}; this object has no devices.")
        if self._peek():
            self._fail("broken JSON: text after the end.")

    def _list(self) -> Iterator[tuple[int, Any]]:
        for _ in self._items("[]"):
            self._peek()
            yield self._line, self._value()

    def _items(self, brackets: str) -> Iterator[None]:
        """Stops before each item of a list or an object, for the caller to take it."""
        end = brackets[1]
        self._take(brackets[0])
        if self._peek() == end:
            self._take(end)
            return
        while True:
            yield
            if self._take("," + end) == end:
                return

    def _fail(self, problem: str, line: int | None = None) -> NoReturn:
        raise BadTable(self._source, line or self._line, problem)

    def _move(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _more(self) -> bool:
        block = next(self._blocks, "")
        self._text = self._text[self._at :] + block
        self._at = 0
        return bool(block)

    def _peek(self) -> str:
        """Returns the next character that is not space, empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._move(space.end() if space else self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _take(self, expected: str) -> str:
        """Steps over the next character, which must be one of `expected`."""
        got = self._peek()
        if not got or got not in expected:
            self._fail(
                f"broken JSON: expected {' or '.join(expected)}, got {'another character' if got else 'the end'}."
            )
        self._move(self._at + 1)
        return got

    def _value(self) -> Any:
        """Steps over the next value and returns it."""
        self._peek()
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
                if error.pos - self._at > MAX_LINE_CHARS:
                    self._fail(f"one value has more than {MAX_LINE_CHARS:,} characters.")
                line = self._line + self._text.count("\n", self._at, error.pos)
                if size > MAX_LINE_CHARS or not self._more():
                    self._fail(f"broken JSON: {error.msg}.", line)
            except RecursionError:
                self._fail("nested too deeply; a device is a flat object.")
            except ValueError as error:  # an integer with thousands of digits
                self._fail(f"broken JSON: {error}.")
