"""Reads arrays of a NumPy file: x and y, and owner; or train_x, train_y, test_x, test_y, train_owner and test_owner.

Inputs of a model that takes a dictionary are x.NAME for each of them. Keras' names x_train, y_train, … do as well.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from airprune.data.files.base import FileParts, FileRequest
from airprune.data.samples import Array, Inputs, Samples
from airprune.errors import InvalidValue
from airprune.text import printable


def holds(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() == ".npz"


def read(request: FileRequest) -> FileParts:
    shown = printable(str(request.path))
    try:
        with np.load(request.path, allow_pickle=False) as file:
            arrays = {_name(key): file[key] for key in file.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidValue(shown, "must be a NumPy file of arrays of numbers", str(error)) from None
    train = _samples(shown, arrays, "train_") or _samples(shown, arrays, "")
    if train is None:
        rule = "must have the arrays x and y, or train_x, train_y, test_x and test_y"
        raise InvalidValue(shown, rule, ", ".join(arrays) or "none")
    owner = request.columns.owner
    if owner is not None and owner != "owner":
        rule = "must be owner for a NumPy file, whose owners are in the array owner"
        raise InvalidValue("as_dataset.owner", rule, repr(owner))
    return FileParts(train=train, test=_samples(shown, arrays, "test_"))


def _name(key: str) -> str:
    name, _, part = key.rpartition("_")
    return f"{part}_{name}" if part in ("train", "test") and name else key


def _samples(shown: str, arrays: Mapping[str, Array], prefix: str) -> Samples | None:
    start = f"{prefix}x."
    inputs = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
    x: Inputs | None = inputs or arrays.get(f"{prefix}x")
    y, owner = arrays.get(f"{prefix}y"), arrays.get(f"{prefix}owner")
    if x is None or y is None:
        return None
    if owner is not None and owner.shape != (len(y),):
        raise InvalidValue(shown, f"must have an owner for each of {len(y)} samples in {prefix}owner", owner.shape)
    return Samples(x=x, y=y, owner=owner)
