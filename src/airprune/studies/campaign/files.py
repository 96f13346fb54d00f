"""The files of a run that are sent between machines, and a check whether they have to be."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airprune import files
from airprune.errors import UsageError, WorkFailed
from airprune.runs.layout import RunFolder

# By path within the run folder.
Files = dict[str, bytes]

# What the driver keeps in the sweep's folder meanwhile; a killed one leaves it behind.
_ARRIVING = ".arriving-"
_MARKER = ".shared-"
MAX_BYTES = 2**31


@dataclass(frozen=True)
class Marker:
    """A file in the sweep's folder with contents that cannot be guessed."""

    path: Path
    contents: str

    @classmethod
    def of(cls, out: Path) -> Marker:
        return cls(out / f"{_MARKER}{secrets.token_hex(4)}", secrets.token_hex(16))

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Keeps the marker in the folder while the sweep runs."""
        out = self.path.parent
        for left_behind in (*out.glob(f"{_MARKER}*"), *out.glob(f"{_ARRIVING}*")):
            if files.is_folder(left_behind):
                shutil.rmtree(left_behind, ignore_errors=True)
            else:
                left_behind.unlink(missing_ok=True)
        try:
            self.path.write_text(self.contents)
        except OSError as error:
            raise UsageError(f"{out} cannot be used as a folder of runs: {error.strerror}.") from None
        try:
            yield
        finally:
            self.path.unlink(missing_ok=True)

    def is_here(self) -> bool:
        """True if this process can write the very folder."""
        try:
            found = files.read_bytes(self.path, max_bytes=len(self.contents)).decode()
            return found == self.contents and os.access(self.path.parent, os.W_OK)
        except (OSError, ValueError):
            return False


def files_in(folder: Path) -> Files:
    """Reads all files of the run; none for a folder without one. OSError if they are too large to be sent."""
    if not RunFolder(folder).has_run:
        return {}
    found: Files = {}
    left = MAX_BYTES
    for path in folder.rglob("*"):
        if files.is_regular(path, inside=folder) and path.name[0] != "." and path.suffix != ".partial":
            content = files.read_bytes(path, inside=folder, max_bytes=left)
            found[path.relative_to(folder).as_posix()] = content
            left -= len(content)
    return found


def put_files(found: Files, folder: Path) -> None:
    for name, contents in found.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)


def install(found: Files, folder: Path) -> None:
    """Puts a run's files in place together, so that a kill leaves the old ones, the new ones or none."""
    arriving = folder.with_name(f"{_ARRIVING}{folder.name}.partial")
    files.remove_folder(arriving)
    try:
        put_files(found, arriving)
        if folder.exists():
            shutil.rmtree(folder)
        arriving.rename(folder)
    except OSError as error:
        raise WorkFailed(
            f"{folder} was not written: {error.strerror or error}; make that possible and continue."
        ) from error
