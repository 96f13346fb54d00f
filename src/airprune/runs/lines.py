"""Files of a run folder: lines that are appended whole and read in bounded memory, JSON that may be damaged, and one
sentence where the folder cannot be written."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from airprune import files
from airprune.errors import WorkFailed

MAX_JSON_BYTES = 2**24
_BEGINNING_BYTES = 256


class Lines:
    """The file while this process writes it.

    Attributes:
      num_bytes: how long it is as far as this process knows; what is beyond was left by another one.
    """

    def __init__(self, path: Path, num_bytes: int = 0) -> None:
        self.path = path
        self.num_bytes = num_bytes

    def cut(self) -> None:
        """Makes the file if need be, and cuts it to `num_bytes`. Comes before `append`."""
        with files.open_to_append(self.path) as file:
            file.truncate(self.num_bytes)

    def append(self, lines: bytes) -> None:
        """Appends lines and returns once they are on the disk; WorkFailed if another process has written."""
        with files.open_to_append(self.path) as file:
            if file.tell() != self.num_bytes:
                raise WorkFailed(
                    f"{self.path} must have {self.num_bytes:,} bytes, as this run left it, got "
                    f"{file.tell():,}: another process writes it; resume the run when none does."
                )
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self.num_bytes += len(lines)


class Line(NamedTuple):
    """One line of a file.

    Attributes:
      content: without its end; of a very long line, the beginning.
      place: where it starts in the file.
      num_bytes: with its end, as far as it was read.
      has_end: True if a line break ends it; the last line of a file may still be being written.
      is_long: True if it is longer than `max_bytes`.
    """

    content: bytes
    place: int
    num_bytes: int
    has_end: bool
    is_long: bool


def lines_in(file: IO[bytes], place: int = 0, *, max_bytes: int, max_skipped_bytes: float = math.inf) -> Iterator[Line]:
    """Yields the lines from a place on, each in at most `max_bytes` of memory.

    Args:
      max_skipped_bytes: how far the end of a longer line is looked for; beyond, the line has none.
    """
    file.seek(place)
    while content := file.readline(max_bytes):
        num_bytes, has_end = len(content), content.endswith(b"\n")
        is_long = not has_end and num_bytes == max_bytes
        if is_long:
            content = content[:_BEGINNING_BYTES]
            stop = num_bytes + max_skipped_bytes
            while not has_end and num_bytes < stop and (part := file.readline(max_bytes)):
                num_bytes, has_end = num_bytes + len(part), part.endswith(b"\n")
        yield Line(content.removesuffix(b"\n"), place, num_bytes, has_end, is_long)
        place += num_bytes


def json_object(line: bytes) -> dict[str, Any] | None:
    """Returns the JSON object of a line; None for one still being written, or damaged."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Reads a JSON file; None if it cannot be read."""
    try:
        return json.loads(files.read_bytes(path, max_bytes=max_bytes))
    except (OSError, ValueError, RecursionError):
        return None


@contextlib.contextmanager
def sentence_if_unwritable(folder: Path) -> Iterator[None]:
    """Turns an OSError within into one sentence that names the run folder, or the path that is in the way."""
    try:
        yield
    except IsADirectoryError as error:
        raise WorkFailed(
            f"{error.filename} is a folder, where the run writes a file; delete it, then resume."
        ) from error
    except OSError as error:
        raise WorkFailed(
            f"{folder} was not written: {error.strerror or error}; make room or free the way, then resume."
        ) from error
