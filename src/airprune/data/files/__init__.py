"""Reads samples of your own from files. To add a format, write its file and list it here.

leaf            LEAF's JSON: users with their x and y
pfllib          PFLlib's folders: train/0.npz, test/0.npz, … of numbered clients
csv_table       a CSV file, or a folder with train.csv and test.csv
npz             arrays x and y, and owner, in a NumPy file
image_folder    a folder for each class, or for each owner and in it for each class

Each is recognised by its names alone; images come last, since any folder may hold some.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from airprune.data.files import csv_table, image_folder, leaf, npz, pfllib
from airprune.data.files.base import FileParts, FileRequest
from airprune.data.samples import Array, Columns, Samples, checked_samples
from airprune.errors import InvalidValue, raise_if_exhausted
from airprune.text import printable

FORMATS = (leaf, pfllib, csv_table, npz, image_folder)
_KNOWN = (
    "Give a .csv, .npz or LEAF .json file; or a folder with train.csv, PFLlib's train/0.npz, LEAF's train/*.json, or "
    "images in a folder for each class."
)

__all__ = ["FORMATS", "FileParts", "digest_of", "read_files"]


def read_files(path: Path, *, targets: str, columns: Columns, sample_shape: tuple[int, ...] | None) -> FileParts:
    """Returns the samples of a file or folder, in the first of FORMATS that it is; class names become numbers.

    Args:
      targets: as of `as_dataset`.
      sample_shape: the shape of a sample, where the file has it flat; the size of images.
    """
    path = path.expanduser()
    shown = printable(str(path))
    if not path.exists():
        raise InvalidValue(shown, "must exist", "no file or folder of that name", _KNOWN)
    request = FileRequest(path=path, targets=targets, columns=columns, sample_shape=sample_shape)
    reader = next((one for one in FORMATS if one.holds(path)), None)
    if reader is None:
        got = "an empty folder" if path.is_dir() and not any(path.iterdir()) else "another kind of file or folder"
        raise InvalidValue(shown, "must hold samples", got, _KNOWN)
    try:
        found = reader.read(request)
    except OSError as error:
        raise_if_exhausted(error)
        raise InvalidValue(shown, "must be readable", error.strerror or str(error)) from None
    train, test, names = _numbered_classes(shown, found, targets)

    def finished(part: Samples) -> Samples:
        return checked_samples(shown, _shaped(shown, part, request), targets)

    return FileParts(train=finished(train), test=None if test is None else finished(test), class_names=names)


def digest_of(path: Path) -> str:
    """Returns the SHA-256 of a file, or of all names and contents in a folder."""
    digest, path = hashlib.sha256(), path.expanduser()
    if not path.exists():
        raise InvalidValue(printable(str(path)), "must exist", "no file or folder of that name")
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
        digest.update(f"{file.relative_to(path).as_posix() if path.is_dir() else ''} {content}\n".encode())
    return digest.hexdigest()


def _shaped(shown: str, part: Samples, request: FileRequest) -> Samples:
    shape = request.sample_shape
    if shape is None or isinstance(part.x, dict) or part.x.shape[1:] == shape or part.x.dtype == np.uint8:
        return part
    if part.x[0].size != np.prod(shape):
        raise InvalidValue(
            shown, f"must have samples of {np.prod(shape)} numbers for the shape {list(shape)}", part.x[0].size
        )
    return Samples(x=part.x.reshape(-1, *shape), y=part.y, owner=part.owner)


def _numbered_classes(shown: str, found: FileParts, targets: str) -> tuple[Samples, Samples | None, tuple[str, ...]]:
    """Returns the parts with classes that are text as numbers, in the order of the sorted names."""
    train, test = found.train, found.test
    if found.class_names or train.y.dtype.kind not in "USO":
        return train, test, found.class_names
    if targets == "values":
        raise InvalidValue(shown, "must have numbers as targets", repr(str(train.y.flat[0])))
    names: Array = np.unique(train.y.astype(str))
    if test is not None and (unknown := set(test.y.astype(str).tolist()) - set(names.tolist())):
        rule = "must have test labels among those of the training samples"
        raise InvalidValue(shown, rule, repr(sorted(unknown)[0]))
    parts = [
        None if part is None else Samples(x=part.x, y=np.searchsorted(names, part.y.astype(str)), owner=part.owner)
        for part in (train, test)
    ]
    assert parts[0] is not None
    return parts[0], parts[1], tuple(names.tolist())
