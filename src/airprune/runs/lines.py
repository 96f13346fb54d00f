"""Lines in a file that only grows: appended whole, written through, and cut back to where a killed process left off."""

from __future__ import annotations

import os
from pathlib import Path

from airprune import files
from airprune.errors import WorkFailed


class Lines:
    """The file while this process writes it.

    Attributes:
      num_bytes: how long it is as far as this process knows; what is beyond was left by another one.
    """

    def __init__(self, path: Path, num_bytes: int = 0) -> None:
        self.path = path
        self.num_bytes = num_bytes

    def cut(self) -> None:
        """Makes the file if need be, and takes away what is beyond `num_bytes`. Comes before `append`."""
        with files.open_to_append(self.path) as file:
            file.truncate(self.num_bytes)

    def append(self, lines: bytes) -> None:
        """Returns once they are on the disk; WorkFailed if somebody else has written."""
        with files.open_to_append(self.path) as file:
            if file.tell() != self.num_bytes:
                raise WorkFailed(
                    f"{self.path} must have {self.num_bytes:,} bytes, as this run left it, got "
                    f"{file.tell():,}: somebody else writes it; resume the run when nobody does."
                )
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self.num_bytes += len(lines)
