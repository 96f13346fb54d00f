"""A records file of any size: at most `MAX_POINTS` global rounds and as many edge rounds stay, evenly thinned.

Of an edge round only its place in the file and its coverage are kept. Edge rounds that thinning will drop are not even
parsed, so a file of hundreds of megabytes takes about a second.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

from airprune.results.measures import CURVE_COLUMNS
from airprune.results.report.reading import edge_rows, round_row
from airprune.rounds.records import EdgeRecord, GlobalRecord, record_in
from airprune.runs.followed import Followed
from airprune.runs.record_reader import RecordReader, edge_numbers
from airprune.web.runs.thinning import Thinned

MAX_POINTS = 1_000
MAX_EDGES = 32

_MAX_FOLLOWED = 64
# Of the rest, such as the lists over devices, nothing is kept.
_FOLLOWED_FIELDS = frozenset({*CURVE_COLUMNS, "edge_id", "coverage", "participants", "left_out"})


class EdgeEntry(NamedTuple):
    """Holds an edge round's place in the file and its coverage: (edge, lowest count, weights kept by none) per edge."""

    global_round: int
    edge_round: int
    place: int
    coverage: tuple[tuple[Any, ...], ...] | None


class RecordsFile(Followed):
    """Follows a run's records.jsonl.

    Attributes:
      rounds: the numbers of global rounds, in the order of `CURVE_COLUMNS`.
      edges: edge rounds.
      num_damaged: lines that are no record.
    """

    def clear(self) -> None:
        self.rounds: Thinned[tuple[float | None, ...]] = Thinned(MAX_POINTS)
        self.edges: Thinned[EdgeEntry] = Thinned(MAX_POINTS)
        self.num_damaged = 0

    def is_whole(self, line: bytes) -> bool:
        return record_in(line) is not None

    def take(self, line: bytes, place: int, *, is_long: bool) -> None:
        if is_long or (line.endswith(b"}") and not self.edges.keeps_next):
            numbers = edge_numbers(line)
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
            self.num_damaged += 1

    def edge_record(self, global_round: int, edge_round: int) -> EdgeRecord | None:
        """The record of one edge round; None if it is not there or too long to be read."""
        with self._lock:
            before = [entry.place for entry in self.edges.items() if entry[:2] <= (global_round, edge_round)]
            num_lines = 3 * self.edges.stride + 8
        if not before:
            return None
        return RecordReader(self.path).edge_record(global_round, edge_round, place=before[-1], num_lines=num_lines)


def _coverage(record: EdgeRecord) -> tuple[tuple[Any, ...], ...]:
    return tuple((row["edge"], row["min_count"], row["num_uncovered"]) for row in edge_rows(record)[:MAX_EDGES])


@functools.lru_cache(maxsize=_MAX_FOLLOWED)
def records_file(path: Path) -> RecordsFile:
    """The one follower of a file, shared by all who look at it."""
    return RecordsFile(path)
