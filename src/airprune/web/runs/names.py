"""Folders as addresses name them: a path from the runs folder with `/` between its parts, `.` for the folder itself.

A name never leads outside: it has no `..`, no backslash and no NUL, is not absolute, and no part of it is a link.
"""

from __future__ import annotations

import re
from pathlib import Path

from starlette.exceptions import HTTPException

from airprune.errors import UsageError
from airprune.text import shown

MAX_NAME_LENGTH = 512
MAX_DEPTH = 5
HERE = "."

_NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,78}[A-Za-z0-9]|[A-Za-z0-9]")
# Names that some systems keep for devices.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def is_part(part: str) -> bool:
    """True if a folder of this name is shown: not hidden, and safe in an address, in JSON and on a screen."""
    return part != "" and part[0] != "." and part.isprintable() and not {"/", "\\"} & set(part)


def checked_parts(name: str) -> list[str]:
    """The parts of a name; UsageError if it is none."""
    parts = [] if name == HERE else name.split("/")
    if len(name) > MAX_NAME_LENGTH or len(parts) > MAX_DEPTH or not all(map(is_part, parts)):
        raise UsageError(
            f"A run's name must be its path from the runs folder, got {shown(name)}. Example: compare/optimal-seed0"
        )
    return parts


def folder_named(root: Path, name: str) -> Path:
    """The folder of this name under `root`; 404 if there is none."""
    path = root
    try:
        for part in checked_parts(name):
            path = path / part
            if path.is_symlink():
                raise missing(name)
        if not path.is_dir():
            raise missing(name)
    except OSError:  # too long for the file system, or not ours to see
        raise missing(name) from None
    return path


def missing(name: str) -> HTTPException:
    return HTTPException(404, f"There is no run {shown(name)} in the runs folder.")


def new_folder(root: Path, name: str) -> Path:
    """Returns the folder of a new run of this name: directly under `root`."""
    if not _NEW_NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise UsageError(
            "The name of a new run must be 1 to 80 letters, digits, dots, dashes or underscores, "
            f"with a letter or digit at both ends, got {shown(name)}. Example: paper-40ms"
        )
    return root / name
