"""One writer per folder.

The lock is a file in the folder, held by flock, so it goes with the process however that ends. A lock file that
is deleted is lost: the next process makes and takes another one. So a writer calls `check` at every save.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from airprune import files
from airprune.errors import UsageError, WorkFailed

LOCK = ".lock"


class Lock:
    """A folder's lock, while it is held."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self._folder = folder
        self._descriptor = descriptor

    def check(self) -> None:
        """Raises if the lock in the folder is no longer this one."""
        if not _is_at(self._descriptor, self._folder / LOCK):
            raise WorkFailed(
                f"{self._folder / LOCK} was removed or replaced, so that another run may write the folder; "
                "this one stops, resume it when no other one runs."
            )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Lock]:
    """Locks this folder, which is made if need be, against other writers.

    A failure before there is a run deletes the lock and the folders made for it.
    """
    with _refused_if_unusable(folder):
        made = [path for path in (folder / LOCK, folder, *folder.parents) if not os.path.lexists(path)]
        descriptor = _taken_lock(folder)
    try:
        yield Lock(folder, descriptor)
    except BaseException:
        if not os.path.lexists(folder / "scenario.toml"):
            _remove(made)
        raise
    finally:
        os.close(descriptor)


def make_run_folder(folder: Path) -> None:
    """Makes the folder and those around it, for a run that has something to write before it takes the lock."""
    with _refused_if_unusable(folder):
        folder.mkdir(parents=True, exist_ok=True)


def is_locked(folder: Path) -> bool:
    """True if a process writes this folder now."""
    try:
        descriptor = files.open_descriptor(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _flocked(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _refused_if_unusable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{folder} cannot be used as a run folder: {error.strerror}.") from None


def _taken_lock(folder: Path) -> int:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = files.open_descriptor(folder / LOCK, os.O_WRONLY | os.O_CREAT)
        if not _taken(descriptor):
            os.close(descriptor)
            raise UsageError(f"{folder} is being written by another run; wait for it or choose another.")
        if _is_at(descriptor, folder / LOCK):
            return descriptor
        os.close(descriptor)  # of a run that came to nothing: the next process would take another one


def _taken(descriptor: int) -> bool:
    """Takes the lock unless another run has it. `is_locked` shares it for a moment; that is not a run."""
    while not _flocked(descriptor, fcntl.LOCK_EX):
        if not _flocked(descriptor, fcntl.LOCK_SH):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(0.001)
    return True


def _flocked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """True if the open file is the one at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _remove(made: list[Path]) -> None:
    """Deletes a file and the folders around it, from the inside out, as far as they are empty."""
    with contextlib.suppress(OSError):
        for path in made:
            path.rmdir() if path.is_dir() else path.unlink()
