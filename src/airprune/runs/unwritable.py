"""What is said when a run folder cannot be written: a full disk, a quota, no descriptors left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from airprune.errors import WorkFailed


@contextlib.contextmanager
def sentence_if_unwritable(folder: Path) -> Iterator[None]:
    """An OSError within becomes one sentence that names the run folder, or the path that is in the way."""
    try:
        yield
    except IsADirectoryError as error:
        raise WorkFailed(
            f"{error.filename} is a folder, where the run writes a file; delete it, then resume."
        ) from error
    except OSError as error:
        raise WorkFailed(
            f"{folder} was not written: {error.strerror or error}; make room or free the way, then resume."
        ) from error
