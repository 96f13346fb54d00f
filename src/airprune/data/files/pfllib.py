"""Reads the folders that PFLlib generates: train/0.npz, train/1.npz, … and test/0.npz, … of numbered clients.

Each file holds a pickled dictionary of x and y, which is read without running anything.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from airprune.data.arrays_only import unpickled
from airprune.data.files.base import FileParts, FileRequest
from airprune.data.samples import Array, Samples, array_of, joined
from airprune.errors import InvalidValue
from airprune.text import printable


def holds(path: Path) -> bool:
    return path.is_dir() and bool(_clients(path / "train"))


def read(request: FileRequest) -> FileParts:
    parts = {name: _clients(request.path / name) for name in ("train", "test")}
    if lacking := sorted(set(parts["test"]) - set(parts["train"])):
        rule = "must have the same clients in train and test"
        raise InvalidValue(printable(str(request.path)), rule, f"client {lacking[0]} in test alone")
    train, test = (_samples(parts[name]) if parts[name] else None for name in ("train", "test"))
    assert train is not None
    return FileParts(train=train, test=test)


def _clients(folder: Path) -> dict[int, Path]:
    """Returns the files by the numbers of their clients, ascending."""
    found = {int(path.stem): path for path in folder.glob("*.npz") if path.stem.isdecimal()}
    return dict(sorted(found.items()))


def _samples(files: dict[int, Path]) -> Samples:
    found = [(client, _client(path)) for client, path in files.items()]
    parts = [Samples(x=one.x, y=one.y, owner=np.full(len(one), client)) for client, one in found if len(one)]
    folder = printable(str(next(iter(files.values())).parent))
    if not parts:
        raise InvalidValue(folder, "must have samples", f"none in {len(files)} files")
    return joined(folder, parts)


def _client(path: Path) -> Samples:
    shown = printable(str(path))
    try:
        with zipfile.ZipFile(path) as archive:
            content = archive.read("data.npy")
        found = _dictionary(content)
        x, y = array_of(shown, found["x"]), array_of(shown, found["y"])
    except InvalidValue:
        raise
    except OSError:
        raise
    except Exception as error:  # whatever a damaged file makes the readers raise
        got = f"{type(error).__name__}: {error}"
        raise InvalidValue(shown, "must hold PFLlib's dictionary data of x and y", got) from None
    if x.dtype.kind not in "fiub" or y.dtype.kind not in "fiub" or len(x) != len(y):
        got = f"{x.dtype} {x.shape} and {y.dtype} {y.shape}"
        raise InvalidValue(shown, "must hold numbers, one target for each sample", got)
    whole = y.dtype.kind == "f" and bool((y == np.rint(y)).all())
    return Samples(x=x, y=y.astype(np.int64) if whole else y)


def _dictionary(content: bytes) -> dict[str, Array]:
    """Returns the only object of an array of objects."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    _, _, dtype = header(file)
    if dtype != np.dtype(object):
        raise ValueError(f"an array of {dtype}")
    found = unpickled(file.read())
    one = found.item() if isinstance(found, np.ndarray) else found
    if not isinstance(one, dict):
        raise ValueError(f"a {type(one).__name__}")
    return one
