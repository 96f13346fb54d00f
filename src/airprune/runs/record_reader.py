"""The one reader of records.jsonl, for reports, frames, web pages, the league and advice.

A line still being written, or damaged, is no record; it is counted and skipped. A caller that needs few fields of long
records names them; the others, such as lists over devices, are neither checked nor kept. `followed` reads a file that
grows.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from airprune import files
from airprune.errors import UsageError
from airprune.rounds.records import RECORDS_VERSION, EdgeRecord, Record, record_in
from airprune.runs.followed import BUFFER_BYTES
from airprune.runs.lines import json_object, lines_in

# Records are read in whole: a longer file would not fit into most machines' memory.
MAX_RECORDS_BYTES = 2**33
MAX_RECORD_BYTES = 2**28
MAX_DEVICES_LINE_BYTES = 32 * 2**20

_FIRST_LOOK_BYTES = 64 * 2**10


class Found(NamedTuple):
    """Records in their order, and how many lines are none."""

    records: list[Record]
    num_damaged: int


class RecordReader:
    """Reads a records.jsonl; one that is not there has no records."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> Iterator[bytes]:
        """Yields the lines as they are; of one that is too long to be a record, the beginning."""
        try:
            with files.open_to_read(self.path, max_bytes=MAX_RECORDS_BYTES, buffer_bytes=BUFFER_BYTES) as file:
                for line in lines_in(file, max_bytes=MAX_RECORD_BYTES):
                    yield line.content
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}.") from None

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yields the records as the JSON objects that `run` yields."""
        return (found for line in self.lines() if (found := _object_in(line)) is not None)

    def read(self, *, only: frozenset[str] | None = None, version: int = RECORDS_VERSION) -> Found:
        """Reads the records and checks their values; see `record_from` for the arguments."""
        records, num_damaged = [], 0
        for line in self.lines():
            record = record_in(line, version, only=only)
            if record is not None:
                records.append(record)
            else:
                num_damaged += bool(line.strip())
        return Found(records, num_damaged)

    def last(self, kind: str, *, within_bytes: int = MAX_RECORD_BYTES) -> dict[str, Any] | None:
        """Returns the last record of this kind as a JSON object, if it begins within so many bytes of the end."""
        with files.open_to_read(self.path) as file:
            size = file.seek(0, os.SEEK_END)
            num_bytes = min(size, within_bytes, _FIRST_LOOK_BYTES)
            while True:
                file.seek(size - num_bytes)
                lines = file.read(num_bytes).split(b"\n")
                for line in reversed(lines if num_bytes == size else lines[1:]):
                    if (found := _object_in(line)) and found["kind"] == kind:
                        return found
                if num_bytes == min(size, within_bytes):
                    return None
                num_bytes = min(size, within_bytes, 8 * num_bytes)

    def edge_record(self, global_round: int, edge_round: int, *, place: int, num_lines: int) -> EdgeRecord | None:
        """Returns the record of an edge round, on one of so many lines from a place on; None if a line is too long."""
        wanted = (global_round, edge_round)
        try:
            with files.open_to_read(self.path, buffer_bytes=BUFFER_BYTES) as file:
                lines = lines_in(file, place, max_bytes=MAX_DEVICES_LINE_BYTES, max_skipped_bytes=0)
                for line in itertools.islice(lines, num_lines):
                    if line.is_long:
                        return None
                    record = record_in(line.content)
                    if isinstance(record, EdgeRecord) and (record.global_round, record.edge_round) == wanted:
                        return record
        except OSError:
            pass
        return None


def _object_in(line: bytes) -> dict[str, Any] | None:
    found = json_object(line)
    return found if found is not None and "kind" in found else None


# A key and a value that is a plain text or an integer, with the sign that comes before; what follows is looked at only.
_PAIR = rb'"([^"\\]*)"\s*:\s*(?:"([^"\\]*)"|(-?\d{1,18}))(?=\s*[,}])'
_FIRST, _NEXT = re.compile(rb"\s*\{\s*" + _PAIR), re.compile(rb"\s*,\s*" + _PAIR)
_PLACE_KEYS = {b"kind", b"global_round", b"edge_round"}


def edge_numbers(line: bytes) -> tuple[int, int] | None:
    """Returns (global round, edge round) of a line that begins like an edge record, without parsing the rest.

    Whatever the order of the keys and the blanks between them, the answer is right, or None: where something else than
    texts and integers comes before.
    """
    found: dict[bytes, bytes | int] = {}
    pair = _FIRST.match(line)
    while pair is not None and not found.keys() >= _PLACE_KEYS:
        found[pair[1]] = int(pair[3]) if pair[2] is None else pair[2]
        pair = _NEXT.match(line, pair.end())
    global_round, edge_round = found.get(b"global_round"), found.get(b"edge_round")
    if found.get(b"kind") == b"edge" and isinstance(global_round, int) and isinstance(edge_round, int):
        return global_round, edge_round
    return None
