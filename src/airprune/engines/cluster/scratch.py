"""Temporary folders with private keys or a run's files, which do not outlive a process that was killed for long."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "airprune-"
_PURPOSES = ("cluster", "factory", "workers")
# A folder this young may be one whose process has yet to lock it.
_YOUNG_S = 60.0


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder that is locked while its process lives.

    The system drops the lock of a process that is killed; whichever process makes the next such folder sees that and
    removes what was left behind.
    """

    def __init__(self, purpose: str) -> None:
        assert purpose in _PURPOSES
        _remove_abandoned()
        super().__init__(prefix=f"{_PREFIX}{purpose}-", ignore_cleanup_errors=True)
        self._lock: int | None = os.open(self.name, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def cleanup(self) -> None:
        super().cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove_abandoned() -> None:
    """Removes this user's folders that no living process has locked."""
    home = Path(tempfile.gettempdir())
    for path in (path for purpose in _PURPOSES for path in home.glob(f"{_PREFIX}{purpose}-*")):
        with contextlib.suppress(OSError):  # another user's, in use, or just removed
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(descriptor)
                if found.st_uid == os.getuid() and time.time() - found.st_mtime > _YOUNG_S:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
