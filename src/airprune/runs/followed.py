"""A file of lines of any size, read once from front to back and then followed as it grows, in bounded memory.

A resumed run cuts its files: whatever no longer follows from what was read is read again from its start.
"""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import IO

from airprune import files
from airprune.runs.lines import lines_in

MAX_BYTES_AT_ONCE = 256 * 2**20
BUFFER_BYTES = 2**20

_END_BYTES = 1_024


class Followed:
    """The lines of a growing file so far; subclasses say what is kept of them.

    Attributes:
      has_tail: True if the last line is unfinished: being written, or cut off.
      num_bytes, num_bytes_read: they differ while a very large file is being read.
      max_bytes_at_once: read by one `refresh`.
      max_line_bytes: of a longer line only the beginning is taken.
    """

    max_line_bytes = 4 * 2**20
    max_bytes_at_once = MAX_BYTES_AT_ONCE

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._restart()

    def clear(self) -> None:
        """Forgets all lines."""
        raise NotImplementedError

    def take(self, line: bytes, place: int, *, is_long: bool) -> None:
        """Takes the next line and its place; of a very long one, only its beginning."""
        raise NotImplementedError

    def is_whole(self, line: bytes) -> bool:
        """True if a last line without an end is complete."""
        raise NotImplementedError

    def _restart(self) -> None:
        self.clear()
        self.has_tail = False
        self.num_bytes = self.num_bytes_read = 0
        self._version: tuple[int, ...] = ()
        self._ends: tuple[bytes, bytes] | None = None
        self._has_more = False

    def refresh(self) -> None:
        """Reads what has come since the last time, at most `max_bytes_at_once`."""
        with self._lock:
            try:
                with files.open_to_read(self.path, buffer_bytes=BUFFER_BYTES) as file:
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
        self._read(file)
        self._ends = self._read_ends(file)

    def _continues(self, file: IO[bytes]) -> bool:
        return not self._ends or self._read_ends(file) == self._ends

    def _read_ends(self, file: IO[bytes]) -> tuple[bytes, bytes]:
        """Reads the first and the last bytes of the part that has been read: another run's differ."""
        num_bytes = min(_END_BYTES, self.num_bytes_read)
        file.seek(0)
        head = file.read(num_bytes)
        file.seek(self.num_bytes_read - num_bytes)
        return head, file.read(num_bytes)

    def _read(self, file: IO[bytes]) -> None:
        stop = self.num_bytes_read + self.max_bytes_at_once
        self.has_tail = False
        for line in lines_in(
            file, self.num_bytes_read, max_bytes=self.max_line_bytes, max_skipped_bytes=MAX_BYTES_AT_ONCE
        ):
            if not line.has_end and not self.is_whole(line.content):
                self.has_tail = True
                break
            if stripped := line.content.strip():
                self.take(stripped, line.place, is_long=line.is_long)
            self.num_bytes_read += line.num_bytes
            if self.num_bytes_read >= stop:
                break
        self._has_more = self.num_bytes_read >= stop


def version_of(path: Path) -> tuple[int, int] | None:
    """Returns (size, time of the last change) of a file; None if there is none, or something else in its place."""
    try:
        about = path.lstat()
    except OSError:
        return None
    return (about.st_size, about.st_mtime_ns) if stat.S_ISREG(about.st_mode) else None
