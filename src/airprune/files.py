"""Reads and writes files in folders that another user may have filled.

Nothing here follows a link, and nothing but a regular file is opened, so that neither a file elsewhere is read or
overwritten nor a pipe waited for. A path's last part is never a link; with `inside`, no part below that folder is. The
path to that folder is the user's choice: links on the way there are followed. A caller that reads a whole file gives
its largest size, and a larger one is refused before it is read: a sparse file of a terabyte takes no disk space.

Files that a user names on a command line are the user's own choice: `open_named` follows links to them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from airprune.errors import WorkFailed
from airprune.text import printable

_COMMON = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PIECE_BYTES = 2**16  # of what a file has beyond its length, as when it grows
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


# Streams that a shell or another program hands over; to wait for them is what is wanted.
_STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


def open_to_read(
    path: Path, *, inside: Path | None = None, max_bytes: int | None = None, buffer_bytes: int = -1
) -> BufferedReader:
    """Opens a regular file; raises OSError for anything else, or for more than `max_bytes` now."""
    file = cast(BufferedReader, os.fdopen(open_descriptor(path, os.O_RDONLY, inside=inside), "rb", buffer_bytes))
    if max_bytes is not None and os.fstat(file.fileno()).st_size > max_bytes:
        file.close()
        raise _is_too_large(path.name, max_bytes)
    return file


def open_named(path: Path) -> BufferedReader:
    """Opens a file that the user has named: by a link too, but a pipe only as `/dev/stdin` or `/dev/fd/…`."""
    if str(path).startswith(_STREAMS):
        return path.open("rb")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise _is_not_regular(path.name)
    return os.fdopen(descriptor, "rb")


def open_to_append(path: Path, *, inside: Path | None = None) -> BinaryIO:
    """Opens a file to append; creates it if it does not exist."""
    return os.fdopen(open_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, inside=inside), "ab")


def read_bytes(path: Path, *, max_bytes: int, inside: Path | None = None) -> bytes:
    with open_to_read(path, inside=inside, max_bytes=max_bytes) as file:
        content = read_at_most(file, max_bytes + 1)
    if len(content) > max_bytes:  # it has grown meanwhile
        raise _is_too_large(path.name, max_bytes)
    return content


def read_at_most(file: BufferedReader, num_bytes: int) -> bytes:
    """Reads as `file.read(num_bytes)`, with memory only for the bytes that the file has."""
    pieces = []
    while num_bytes > 0:
        left = os.fstat(file.fileno()).st_size - file.tell()
        piece = file.read(min(num_bytes, max(left, _PIECE_BYTES)))
        if not piece:
            break
        pieces.append(piece)
        num_bytes -= len(piece)
    return b"".join(pieces)


def is_regular(path: Path, *, inside: Path | None = None, max_bytes: int | None = None) -> bool:
    """True if `open_to_read` would open it."""
    try:
        open_to_read(path, inside=inside, max_bytes=max_bytes).close()
    except OSError:
        return False
    return True


def is_folder(path: Path) -> bool:
    """True if this is a folder itself, not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


@contextlib.contextmanager
def replacing(path: Path, *, inside: Path | None = None, partial: str | None = None) -> Iterator[BinaryIO]:
    """Opens a new file that takes the name on success, whatever was there, and vanishes on failure.

    Args:
      partial: its name until then; only for holders of a lock, since it deletes the file of a killed process under
        that name. By default a unique name with host and process.
    """
    with _opened_parent(path, inside) as (parent, name):
        if partial is None:
            _clear_orphans(parent)
            partial = f".airprune-{_HOST}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
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


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a new file as `replacing` does, in folders that are made as needed; raises WorkFailed with a sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise WorkFailed(f"{printable(str(path))} was not written: {error.strerror or error}.") from error


_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_ORPHAN = re.compile(rf"\.airprune-{_HOST}-(\d+)-[0-9a-f]{{16}}\.tmp")
_cleared: set[tuple[int, int]] = set()


def _clear_orphans(parent: int) -> None:
    """Deletes unfinished files whose process was killed, on this machine; once per folder and process."""
    found = os.fstat(parent)
    if (found.st_dev, found.st_ino) in _cleared:
        return
    _cleared.add((found.st_dev, found.st_ino))
    for name in os.listdir(parent):
        if (match := _ORPHAN.fullmatch(name)) and not _lives(int(match[1])):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=parent)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user
        return True
    return True


def make_folder(path: Path, *, inside: Path | None = None) -> None:
    """Makes a folder; accepts one that exists, but not a link to one."""
    with _opened_parent(path, inside) as (parent, name):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        os.close(_open_folder(name, parent))


def remove_folder(path: Path) -> None:
    """Deletes a folder with its content, as far as possible; of a link, the link."""
    if path.is_symlink():
        with contextlib.suppress(OSError):
            path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def open_descriptor(path: Path, flags: int, *, inside: Path | None = None) -> int:
    """Opens a regular file that is not a link, as `os.open` does."""
    with _opened_parent(path, inside) as (parent, name):
        try:
            descriptor = os.open(name, flags | _COMMON, 0o666, dir_fd=parent)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _is_a_link(name) from None
            if error.errno == errno.ENXIO:  # a socket, or a pipe without a reader
                raise _is_not_regular(name) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _is_not_regular(name)
        return descriptor


@contextlib.contextmanager
def _opened_parent(path: Path, inside: Path | None) -> Iterator[tuple[int, str]]:
    """Opens the folder of the file; yields (folder, name in it). An error about a folder in its place has the path."""
    base = path.parent if inside is None else inside
    *folders, name = path.relative_to(base).parts
    descriptor = os.open(base, _FOLDER)
    try:
        for folder in folders:
            inner = _open_folder(folder, descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    except IsADirectoryError as error:  # renaming names both ends
        in_the_way = path.parent / (error.filename2 or error.filename or name)
        raise IsADirectoryError(errno.EISDIR, error.strerror, str(in_the_way)) from None
    finally:
        os.close(descriptor)


def _open_folder(name: str, parent: int) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:  # a link gives ENOTDIR or ELOOP by system
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and stat.S_ISLNK(
            os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        ):
            raise _is_a_link(name) from None
        raise


def _is_too_large(name: str, max_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"{name} must have at most {max_bytes:,} bytes, got more")


def _is_not_regular(name: str) -> OSError:
    return OSError(errno.EINVAL, f"{name} is not a regular file")


def _is_a_link(name: str) -> OSError:
    return OSError(errno.ELOOP, f"{name} is a link, and links in such a folder are not followed")
