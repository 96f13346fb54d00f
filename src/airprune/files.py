"""Files in folders that somebody else may have filled.

Nothing here follows a link, and nothing but a regular file is opened, so that neither a file elsewhere is overwritten
nor a pipe waited for. A path's last part is never a link; with `inside`, no part below that folder is. How one gets to
that folder is the user's choice: links on the way there are followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

_COMMON = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def open_to_read(path: Path, *, inside: Path | None = None) -> BufferedReader:
    return os.fdopen(open_descriptor(path, os.O_RDONLY, inside=inside), "rb")


def open_to_append(path: Path, *, inside: Path | None = None) -> BinaryIO:
    """Made if it is not there."""
    return os.fdopen(open_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, inside=inside), "ab")


def read_bytes(path: Path, *, inside: Path | None = None) -> bytes:
    with open_to_read(path, inside=inside) as file:
        return file.read()


def is_regular(path: Path, *, inside: Path | None = None) -> bool:
    """Whether `open_to_read` would open it."""
    try:
        os.close(open_descriptor(path, os.O_RDONLY, inside=inside))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def replacing(path: Path, *, inside: Path | None = None, partial: str | None = None) -> Iterator[BinaryIO]:
    """A new file that takes the name on success, whatever lay there, and vanishes on failure.

    Args:
      partial: its name until then; only for those who hold a lock, since it clears away what a killed process left
        under that name. Without one it is a name that nobody else has.
    """
    with _opened_parent(path, inside) as (parent, name):
        partial = partial or f".airprune-{secrets.token_hex(8)}.tmp"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _COMMON
        try:
            with os.fdopen(os.open(partial, flags, 0o666, dir_fd=parent), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial, dir_fd=parent)
            raise


def make_folder(path: Path, *, inside: Path | None = None) -> None:
    """As `mkdir`, content with a folder that is there, but not with a link to one."""
    with _opened_parent(path, inside) as (parent, name):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        os.close(_open_folder(name, parent))


def remove_folder(path: Path) -> None:
    """With all that is in it, as far as it can be; of a link, the link."""
    if path.is_symlink():
        with contextlib.suppress(OSError):
            path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def open_descriptor(path: Path, flags: int, *, inside: Path | None = None) -> int:
    """As `os.open`, for a regular file that is no link."""
    with _opened_parent(path, inside) as (parent, name):
        try:
            descriptor = os.open(name, flags | _COMMON, 0o666, dir_fd=parent)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _is_a_link(name) from None
            if error.errno == errno.ENXIO:  # a socket, or a pipe that nobody reads
                raise _is_not_regular(name) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _is_not_regular(name)
        return descriptor


@contextlib.contextmanager
def _opened_parent(path: Path, inside: Path | None) -> Iterator[tuple[int, str]]:
    """The folder that the file is in, and its name there."""
    base = path.parent if inside is None else inside
    *folders, name = path.relative_to(base).parts
    descriptor = os.open(base, _FOLDER)
    try:
        for folder in folders:
            inner = _open_folder(folder, descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


def _open_folder(name: str, parent: int) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:  # of a link, ENOTDIR or ELOOP by system
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and stat.S_ISLNK(
            os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        ):
            raise _is_a_link(name) from None
        raise


def _is_not_regular(name: str) -> OSError:
    return OSError(errno.EINVAL, f"{name} is not a regular file")


def _is_a_link(name: str) -> OSError:
    return OSError(errno.ELOOP, f"{name} is a link, and links in such a folder are not followed")
