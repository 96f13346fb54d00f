"""A factory and its files: placed once per machine, identified by hash, opened once per worker.

A worker on the driver's machine, or on a shared file system, opens the driver's own files. On other machines one worker
receives the files from the driver and keeps them in a folder named after their hash, for itself and its neighbours.
"""

from __future__ import annotations

import errno
import getpass
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airprune.engines.base import WorkerFactory, opened, pack, unpack
from airprune.engines.machine import single_thread
from airprune.errors import WorkFailed

PART_BYTES = 8 * 2**20
_FACTORY = "factory.pickle"
_COMPLETE = "complete"
_STALE_S = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """Locates the files and names their digest; travels with every task.

    Attributes:
      folder: the driver's; other machines may see it, too.
      digest: SHA-256 of the files, the packed factory being one of them.
    """

    folder: Path
    digest: str

    @classmethod
    def of(cls, factory: WorkerFactory, place: Path) -> Parcel:
        """Puts the packed factory beside its files, or into `place` if it has none."""
        folder = factory.folder or place
        (folder / _FACTORY).write_bytes(pack(factory))
        return cls(folder=folder, digest=_digest(folder))

    @property
    def here(self) -> Path | None:
        """Folder on this machine, if there is one."""
        if (self.folder / _FACTORY).is_file():
            return self.folder
        kept = self._kept
        return kept if (kept / _COMPLETE).exists() and _is_ours(_home()) else None

    @property
    def _kept(self) -> Path:
        return _home() / self.digest

    def open(self) -> Any:
        """Opens the worker with this machine's files; refuses files with other contents."""
        folder = self.here
        if folder is None:
            raise WorkFailed(f"The files of factory {self.digest[:12]}… are not on this machine.")
        found = _digest(folder)
        if found != self.digest:
            raise WorkFailed(
                f"{folder} holds data with hash {found[:12]}…, but this run's data has {self.digest[:12]}…."
            )
        factory = unpack((folder / _FACTORY).read_bytes())
        worker = opened(factory, None if factory.folder is None else folder)
        single_thread()  # however this process was started
        return worker

    def make_room(self, num_bytes: int) -> None:
        """Makes room for files to come; clears away what was not used for a day. An `OSError` if they would not fit."""
        home, kept = _home(), self._kept
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(home):
            raise PermissionError(errno.EACCES, "it belongs to another user", str(home))
        for other in home.iterdir():
            if other != kept and time.time() - other.stat().st_mtime > _STALE_S:
                shutil.rmtree(other, ignore_errors=True)
        if shutil.disk_usage(home).free < num_bytes:
            raise OSError(errno.ENOSPC, f"no space left for {num_bytes / 1e6:,.1f} MB", str(home))
        kept.mkdir(mode=0o700, exist_ok=True)

    def receive(self, name: str, offset: int, piece: bytes) -> None:
        """Keeps one piece of a file."""
        path = self._kept / Path(name).name
        path.touch(mode=0o600)
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(piece)

    def complete(self) -> None:
        (self._kept / _COMPLETE).touch()

    def forget(self) -> None:
        """Removes this machine's own copy, if it has one."""
        shutil.rmtree(self._kept, ignore_errors=True)


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in _files(folder))


def parts_of(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yields (file name, offset, bytes) of all files, in pieces small enough to send."""
    for path in _files(folder):
        with path.open("rb") as file:
            while piece := file.read(PART_BYTES):
                yield path.name, file.tell() - len(piece), piece


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in _files(folder):
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name != _COMPLETE)


def _home() -> Path:
    return Path(tempfile.gettempdir()) / f"airprune-{getpass.getuser()}"


def _is_ours(home: Path) -> bool:
    """Others may make folders beside the system's temporary files, too."""
    return not home.is_symlink() and home.stat().st_uid == os.getuid()
