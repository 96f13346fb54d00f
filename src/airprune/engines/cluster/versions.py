"""Identifies the code of a process by digests of its files, not only by the version of its installation.

The digest of airprune's own files is taken when this module is imported, and again for each check: a process
whose files have changed may import some of them, and is not what it was.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

import airprune
from airprune.models.kernels import native

_PACKAGES = ("torch", "numpy")
_SHOWN = 12
_FILES = "files"


def code_digest() -> str:
    """Returns the SHA-256 of all Python files of airprune, as they lie there now."""
    home = Path(airprune.__file__).parent
    return _digest(home, home.rglob("*.py"))


def _build_digest(package: str) -> str:
    """Returns the digest of the module in which a package's build has noted its version and commit.

    Read, not imported, since torch takes seconds to import.
    """
    spec = importlib.util.find_spec(package)
    home = Path(spec.origin).parent if spec and spec.origin else Path()
    return _digest(home, [home / "version.py"])


def _digest(home: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
        digest.update(f"{path.relative_to(home).as_posix()} {content}\n".encode())
    return digest.hexdigest()[:_SHOWN]


_AT_START = code_digest()


def versions() -> dict[str, str]:
    """Returns the versions on which the bits of any result depend; a factory may refuse to open for more reasons.

    Of a package first the version, which says most, then what its files are.
    """
    found = {"python": ".".join(platform.python_version_tuple()[:2]), "airprune": airprune.__version__}
    found |= {f"airprune {_FILES}": _AT_START, "native kernel from": native.sources}
    for name in _PACKAGES:
        found |= {name: importlib.metadata.version(name), f"{name} build": _build_digest(name)}
    return found


def difference(wanted: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """Returns the first difference of a worker's code from the driver's, as the rest of a sentence about the worker.

    Where one of them has no native kernel there is nothing to compare: a factory that needs it asks for it.
    """
    for name, value in wanted.items():
        theirs = found.get(name, "unknown")
        if theirs != value and (value and theirs):
            return f"has {name} {theirs}, but this run has {name} {value}"
    return None


def change_since_start() -> str | None:
    """Returns the rest of a sentence about this process if its files are not those it was started with, else None."""
    now = code_digest()
    return None if now == _AT_START else f"has airprune {_FILES} {now} now but was started with {_AT_START}; restart it"
