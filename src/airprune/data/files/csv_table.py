"""Reads a CSV file with a header, or a folder with train.csv and test.csv."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from airprune.data.files.base import FileParts, FileRequest
from airprune.data.samples import Array, Samples
from airprune.errors import BadTable, InvalidValue
from airprune.text import printable

_ENDINGS = {".csv": ",", ".tsv": "\t"}


def holds(path: Path) -> bool:
    return path.suffix.lower() in _ENDINGS if path.is_file() else (path / "train.csv").is_file()


def read(request: FileRequest) -> FileParts:
    path = request.path
    if path.is_file():
        return FileParts(train=_samples(path, request))
    test = path / "test.csv"
    return FileParts(
        train=_samples(path / "train.csv", request), test=_samples(test, request) if test.is_file() else None
    )


def _samples(path: Path, request: FileRequest) -> Samples:
    shown = printable(str(path))
    header, rows = _rows(path, shown)
    target, features = request.columns.chosen(shown, header)
    place = {name: number for number, name in enumerate(header)}
    x = np.empty((len(rows), len(features)), dtype=np.float32)
    for number, name in enumerate(features):
        column = _numbers([row[place[name]] for row in rows])
        if isinstance(column, int):
            got = rows[column][place[name]]
            raise BadTable(
                shown, column + 2, f"column {name!r} must hold numbers, got {got!r}; leave it out of features"
            )
        x[:, number] = column
    owner = request.columns.owner
    return Samples(
        x=x,
        y=_targets(shown, target, [row[place[target]] for row in rows]),
        owner=None if owner is None else _owners(shown, owner, [row[place[owner]] for row in rows]),
    )


def _rows(path: Path, shown: str) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            delimiter = _ENDINGS.get(path.suffix.lower(), ",")
            if delimiter == "," and "," not in first and ";" in first:
                delimiter = ";"
            file.seek(0)
            lines = [row for row in csv.reader(file, delimiter=delimiter) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidValue(shown, "must be a CSV file in UTF-8", str(error)) from None
    if len(lines) < 2:
        raise InvalidValue(shown, "must have a header and samples", f"{len(lines)} lines")
    header = [name.strip() for name in lines[0]]
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InvalidValue(shown, "must name each column once", f"{twice!r} twice")
    for number, row in enumerate(lines[1:]):
        if len(row) != len(header):
            raise BadTable(shown, number + 2, f"{len(header)} columns are named, but there are {len(row)} values")
    return header, lines[1:]


def _numbers(texts: list[str]) -> Array | int:
    """Returns the texts as numbers, or the place of the first that is none."""
    try:
        return np.array(texts, dtype=np.float64)
    except ValueError:
        return next(place for place, text in enumerate(texts) if not _is_number(text))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _targets(shown: str, name: str, texts: list[str]) -> Array:
    """Returns whole numbers, real numbers or names of classes, whichever they are."""
    try:
        return np.array([int(text) for text in texts], dtype=np.int64)
    except (ValueError, OverflowError):
        pass
    numbers = _numbers(texts)
    if not isinstance(numbers, int):
        return numbers
    is_number = [_is_number(text) for text in texts]
    if any(is_number):
        raise BadTable(
            shown, numbers + 2, f"column {name!r} must hold numbers or names, got {texts[numbers]!r} among numbers"
        )
    return np.array([text.strip() for text in texts])


def _owners(shown: str, name: str, texts: list[str]) -> Array:
    if "" in (stripped := [text.strip() for text in texts]):
        raise BadTable(shown, stripped.index("") + 2, f"column {name!r} must name an owner, got nothing")
    if all(text.isdecimal() for text in stripped):
        return np.array([int(text) for text in stripped], dtype=np.int64)
    return np.array(stripped)
