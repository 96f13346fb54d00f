"""A records file of any size, read once from front to back and then followed as it grows.

Memory is bounded: at most `MAX_POINTS` global rounds and as many edge rounds stay, evenly thinned, and of an edge round
only its place in the file and its coverage. Edge rounds that thinning will drop are not even parsed, so a file of
hundreds of megabytes takes about a second. A resumed run cuts its file: whatever no longer follows from what was read
is read again from its start.
"""

from __future__ import annotations

import functools
import os
import threading
from pathlib import Path
from typing import IO, Any, NamedTuple

from airprune.measures import CURVE_COLUMNS
from airprune.records import EdgeRecord, GlobalRecord, record_in
from airprune.report.reading import edge_rows, round_row
from airprune.web.runs.heads import first_values
from airprune.web.runs.names import is_plain_file
from airprune.web.runs.thinning import Thinned

MAX_POINTS = 1_000
MAX_EDGES = 32
MAX_LINE_BYTES = 4 * 2**20
MAX_DEVICES_LINE_BYTES = 32 * 2**20
MAX_BYTES_AT_ONCE = 256 * 2**20

_MAX_FOLLOWED = 64
_BUFFER_BYTES = 2**20
_END_BYTES = 1_024
_HEAD_BYTES = 256
# Of the rest, such as the lists over devices, nothing is kept.
_FOLLOWED_FIELDS = frozenset({*CURVE_COLUMNS, "edge_id", "coverage", "participants", "left_out"})
_PLACE_KEYS = (b"kind", b"global_round", b"edge_round")


class EdgeEntry(NamedTuple):
    """Where an edge round is in the file, and its coverage: (edge, lowest count, weights kept by none) per edge."""

    global_round: int
    edge_round: int
    place: int
    coverage: tuple[tuple[Any, ...], ...] | None


class RecordsFile:
    """What a run's records.jsonl has told so far.

    Attributes:
      rounds: the numbers of global rounds, in the order of `CURVE_COLUMNS`.
      edges: edge rounds.
      num_spoilt: lines that are no record.
      has_tail: whether the last line is unfinished: being written, or cut off.
      num_bytes, num_bytes_read: they differ while a very large file is being read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._restart()

    def _restart(self) -> None:
        self.rounds: Thinned[tuple[float | None, ...]] = Thinned(MAX_POINTS)
        self.edges: Thinned[EdgeEntry] = Thinned(MAX_POINTS)
        self.num_spoilt = 0
        self.has_tail = False
        self.num_bytes = self.num_bytes_read = 0
        self._version: tuple[int, ...] = ()
        self._ends: tuple[bytes, bytes] | None = None
        self._has_more = False

    def refresh(self) -> None:
        """Reads what has come since the last time, at most `MAX_BYTES_AT_ONCE`."""
        with self._lock:
            if not is_plain_file(self.path):
                self._restart()
                return
            try:
                with self.path.open("rb", buffering=_BUFFER_BYTES) as file:
                    self._follow(file)
            except OSError:
                self._restart()

    def _follow(self, file: IO[bytes]) -> None:
        status = os.fstat(file.fileno())
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        if version == self._version and not self._has_more:
            return
        if status.st_size < self.num_bytes_read or not self._continues(file):
            self._restart()
        self._version, self.num_bytes = version, status.st_size
        file.seek(self.num_bytes_read)
        self._read(file)
        self._ends = self._read_ends(file)

    def _continues(self, file: IO[bytes]) -> bool:
        return not self._ends or self._read_ends(file) == self._ends

    def _read_ends(self, file: IO[bytes]) -> tuple[bytes, bytes]:
        """The first and the last bytes of what has been read: another run's differ."""
        num_bytes = min(_END_BYTES, self.num_bytes_read)
        file.seek(0)
        head = file.read(num_bytes)
        file.seek(self.num_bytes_read - num_bytes)
        return head, file.read(num_bytes)

    def _read(self, file: IO[bytes]) -> None:
        stop = self.num_bytes_read + MAX_BYTES_AT_ONCE
        self.has_tail = False
        while self.num_bytes_read < stop and (line := file.readline(MAX_LINE_BYTES)):
            length, is_whole = len(line), line.endswith(b"\n")
            if not is_whole and length == MAX_LINE_BYTES:
                more, is_whole = _skip_line(file)
                length, line = length + more, line[:_HEAD_BYTES]
            if not is_whole and record_in(line) is None:
                self.has_tail = True
                break
            self._take(line.strip(), self.num_bytes_read, is_long=length > MAX_LINE_BYTES)
            self.num_bytes_read += length
        self._has_more = self.num_bytes_read >= stop

    def _take(self, line: bytes, place: int, *, is_long: bool) -> None:
        if not line:
            return
        if is_long or (line.endswith(b"}") and not self.edges.keeps_next):
            numbers = _edge_numbers(line)
            if numbers is not None:
                self.edges.append(EdgeEntry(*numbers, place, None))
                return
        record = record_in(line, only=_FOLLOWED_FIELDS)
        if isinstance(record, GlobalRecord):
            row = round_row(record)
            self.rounds.append(tuple(row[name] for name in CURVE_COLUMNS))
        elif isinstance(record, EdgeRecord):
            self.edges.append(EdgeEntry(record.global_round, record.edge_round, place, _coverage(record)))
        elif record is None:
            self.num_spoilt += 1

    def edge_record(self, global_round: int, edge_round: int) -> EdgeRecord | None:
        """The record of one edge round; None if it is not there or too long to be read."""
        wanted = (global_round, edge_round)
        with self._lock:
            before = [entry.place for entry in self.edges.items() if entry[:2] <= wanted]
            num_lines = 3 * self.edges.stride + 8
        if not before or not is_plain_file(self.path):
            return None
        try:
            with self.path.open("rb", buffering=_BUFFER_BYTES) as file:
                file.seek(before[-1])
                return _find(file, wanted, num_lines)
        except OSError:
            return None


def _edge_numbers(line: bytes) -> tuple[int, int] | None:
    """(global round, edge round) of a line that begins like an edge record."""
    head = first_values(line, _PLACE_KEYS)
    if head is None or head[b"kind"] != b"edge":
        return None
    global_round, edge_round = head[b"global_round"], head[b"edge_round"]
    return (global_round, edge_round) if isinstance(global_round, int) and isinstance(edge_round, int) else None


def _find(file: IO[bytes], wanted: tuple[int, int], num_lines: int) -> EdgeRecord | None:
    for _ in range(num_lines):
        line = file.readline(MAX_DEVICES_LINE_BYTES)
        if len(line) == MAX_DEVICES_LINE_BYTES:
            return None
        record = record_in(line)
        if isinstance(record, EdgeRecord) and (record.global_round, record.edge_round) == wanted:
            return record
    return None


def _skip_line(file: IO[bytes]) -> tuple[int, bool]:
    """Goes past the rest of a line: how long it is, and whether it has an end."""
    length = 0
    while part := file.readline(MAX_LINE_BYTES):
        length += len(part)
        if part.endswith(b"\n"):
            return length, True
    return length, False


def _coverage(record: EdgeRecord) -> tuple[tuple[Any, ...], ...]:
    return tuple((row["edge"], row["min_count"], row["num_uncovered"]) for row in edge_rows(record)[:MAX_EDGES])


@functools.lru_cache(maxsize=_MAX_FOLLOWED)
def records_file(path: Path) -> RecordsFile:
    """The one follower of a file, shared by all who look at it."""
    return RecordsFile(path)
