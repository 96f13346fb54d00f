"""The one reader of records.jsonl, whoever asks: reports, frames, pages, the league, advice.

    RecordReader       a file as it is now: from front to back, or its last record
    FollowedRecords    a file as it grows, in bounded memory

A line still being written, or damaged, is no record; it is counted and left out. Who needs few fields of long records
names them, and the others, such as lists over devices, are neither checked nor kept.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

from airprune import files
from airprune.errors import UsageError
from airprune.rounds.records import RECORDS_VERSION, EdgeRecord, Record, record_in
from airprune.runs.followed import BUFFER_BYTES, Followed
from airprune.runs.lines import lines_in

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
        """The lines as they are; of one that no run writes, since it is too long, the beginning."""
        try:
            with files.open_to_read(self.path, max_bytes=MAX_RECORDS_BYTES, buffer_bytes=BUFFER_BYTES) as file:
                for line in lines_in(file, max_bytes=MAX_RECORD_BYTES):
                    yield line.content
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}.") from None

    def objects(self) -> Iterator[dict[str, Any]]:
        """The records as the JSON objects that `run` yields."""
        return (found for line in self.lines() if (found := _object_in(line)) is not None)

    def read(self, *, only: frozenset[str] | None = None, version: int = RECORDS_VERSION) -> Found:
        """The records with their values checked; see `record_from` for the arguments."""
        records, num_damaged = [], 0
        for line in self.lines():
            record = record_in(line, version, only=only)
            if record is not None:
                records.append(record)
            else:
                num_damaged += bool(line.strip())
        return Found(records, num_damaged)

    def last(self, kind: str, *, within_bytes: int = MAX_RECORD_BYTES) -> dict[str, Any] | None:
        """The last record of this kind as a JSON object, if it begins within so many bytes of the end."""
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


def _object_in(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "kind" in found else None


class FollowedRecords(Followed):
    """A records.jsonl as it grows; what is kept of its records, its kinds decide.

    Attributes:
      only: the fields that are read of a record.
      num_damaged: lines that are no record.
    """

    only: ClassVar[frozenset[str]] = frozenset()

    def clear(self) -> None:
        self.num_damaged = 0

    def wants_edge_round(self) -> bool:
        """Whether the next edge round is read, or only where it is."""
        raise NotImplementedError

    def take_record(self, record: Record, place: int) -> None:
        """The next record, and where it starts."""
        raise NotImplementedError

    def take_place(self, global_round: int, edge_round: int, place: int) -> None:
        """Where an edge round is whose record is not read: it is not wanted, or too long."""
        raise NotImplementedError

    def is_whole(self, line: bytes) -> bool:
        return record_in(line) is not None

    def take(self, line: bytes, place: int, *, is_long: bool) -> None:
        if is_long or (line.endswith(b"}") and not self.wants_edge_round()):
            numbers = _edge_numbers(line)
            if numbers is not None:
                self.take_place(*numbers, place)
                return
        record = record_in(line, only=self.only)
        if record is None:
            self.num_damaged += 1
        else:
            self.take_record(record, place)

    def edge_record(self, global_round: int, edge_round: int, *, place: int, num_lines: int) -> EdgeRecord | None:
        """All of an edge round's record, looked for on so many lines from a place on; None if it is too long."""
        try:
            with files.open_to_read(self.path, buffer_bytes=BUFFER_BYTES) as file:
                return _find(file, (global_round, edge_round), place, num_lines)
        except OSError:
            return None


def _find(file: IO[bytes], wanted: tuple[int, int], place: int, num_lines: int) -> EdgeRecord | None:
    lines = lines_in(file, place, max_bytes=MAX_DEVICES_LINE_BYTES, max_skipped_bytes=0)
    for line, _ in zip(lines, range(num_lines), strict=False):
        if line.is_long:
            return None
        record = record_in(line.content)
        if isinstance(record, EdgeRecord) and (record.global_round, record.edge_round) == wanted:
            return record
    return None


# A key and a value that is a plain text or an integer, with the sign that comes before; what follows is looked at only.
_PAIR = rb'"([^"\\]*)"\s*:\s*(?:"([^"\\]*)"|(-?\d{1,18}))(?=\s*[,}])'
_FIRST, _NEXT = re.compile(rb"\s*\{\s*" + _PAIR), re.compile(rb"\s*,\s*" + _PAIR)
_PLACE_KEYS = (b"kind", b"global_round", b"edge_round")


def first_values(line: bytes, names: tuple[bytes, ...]) -> dict[bytes, bytes | int] | None:
    """The values of these keys of a JSON object, without parsing the rest.

    None unless only texts and integers come before and between them, whatever the order of the keys and the blanks.
    """
    found: dict[bytes, bytes | int] = {}
    pair = _FIRST.match(line)
    while pair is not None:
        if pair[1] in names:
            found[pair[1]] = int(pair[3]) if pair[2] is None else pair[2]
            if len(found) == len(names):
                return found
        pair = _NEXT.match(line, pair.end())
    return None


def _edge_numbers(line: bytes) -> tuple[int, int] | None:
    """(global round, edge round) of a line that begins like an edge record."""
    head = first_values(line, _PLACE_KEYS)
    if head is None or head[b"kind"] != b"edge":
        return None
    global_round, edge_round = head[b"global_round"], head[b"edge_round"]
    return (global_round, edge_round) if isinstance(global_round, int) and isinstance(edge_round, int) else None
