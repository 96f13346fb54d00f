"""Named arrays and facts in one safetensors file with a checksum.

A SHA-256 over all of them lies beside them, so a flipped bit anywhere, a file cut short or one made by something else
is refused. The owner of the file knows the meaning of the arrays and the facts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airprune import files
from airprune.errors import WorkFailed

if TYPE_CHECKING:
    from numpy import ndarray as Array

# One entry only: safetensors writes several in an order that changes from one process to the next.
_ENTRY = "airprune"
_UNREADABLE = (OSError, LookupError, ValueError, TypeError, AttributeError, RecursionError)
_MAX_HEADER_BYTES = 2**26


class Unchecked(WorkFailed):
    """A file without checksums: of an earlier airprune, or not ours."""


def write(path: Path, arrays: Mapping[str, Array], facts: dict[str, Any], *, inside: Path | None = None) -> None:
    """Replaces the file in one step; OSError if it cannot be written.

    Args:
      facts: plain JSON, in which numbers may also be NaN or infinite: a model that diverged has such totals.
      inside: no folder below this one may be a link, see `files`.
    """
    import numpy as np
    import safetensors.numpy

    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(facts, sort_keys=True)
    metadata = {_ENTRY: json.dumps({"facts": text, "sha256": _digest(whole, text)}, sort_keys=True)}
    content = safetensors.numpy.save(whole, metadata)
    with files.replacing(path, inside=inside, partial=f"{path.stem}.partial") as file:
        file.write(content)


def read(path: Path, *, inside: Path | None = None) -> tuple[dict[str, Array], dict[str, Any]]:
    """Reads the arrays and the facts; WorkFailed in one sentence if they are not what was written."""
    import safetensors.numpy  # here, since reading records does not need it

    try:
        if not is_whole(path, inside=inside):
            files.open_to_read(path, inside=inside).close()  # says so if it is not even a file
            raise _NotOurs("it is cut off, or no file of a run")
        content = files.read_bytes(path, inside=inside, max_bytes=_max_bytes())
        entry = _header(content).get("__metadata__", {}).get(_ENTRY)
        arrays = safetensors.numpy.load(content)
        if entry is None:
            raise Unchecked(f"{path} has no checksums: an earlier airprune wrote it, or something else.")
        sealed = json.loads(entry)
        text = sealed["facts"]
        if sealed["sha256"] != _digest(arrays, text):
            raise _NotOurs("its contents are not those that were written")
        return arrays, json.loads(text)
    except (*_UNREADABLE, safetensors.SafetensorError) as error:
        # Other messages would quote the file.
        reason = error.strerror if isinstance(error, OSError) else error if isinstance(error, _NotOurs) else "not ours"
        raise WorkFailed(f"{path} cannot be read ({reason}); start over in another folder.") from None


class _NotOurs(ValueError):
    """The reason why a file is refused, in words that quote nothing of it."""


def _max_bytes() -> int:
    """Returns a third of this machine's memory: reading takes twice a file's size."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3


def is_whole(path: Path, *, inside: Path | None = None) -> bool:
    """True if the file has its full length, a quick check; a flipped bit is found by `read` only."""
    try:
        with files.open_to_read(path, inside=inside) as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if size <= _MAX_HEADER_BYTES else {}
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            return bool(header) and 8 + size + max(ends, default=0) == os.fstat(file.fileno()).st_size
    except _UNREADABLE:
        return False


def _header(content: bytes) -> dict[str, Any]:
    size = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + size])
    return header


def _digest(arrays: Mapping[str, Array], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
