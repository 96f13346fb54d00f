"""Binary files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from airprune.errors import WorkFailed
from airprune.text import printable


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A new file beside `path` that takes its name on success and vanishes on failure; folders are made."""
    temporary = path.with_name(f".airprune-{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise WorkFailed(f"{printable(str(path))} was not written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):  # e.g. the folder turned out to be a file; the error above says so
            temporary.unlink(missing_ok=True)
