"""Reads LEAF's JSON: users with their x and y, in one file or in the folders train and test.

Numbers are used as they are. Texts of one length, as of LEAF's Shakespeare, become places in its alphabet of 80
characters, and a target of one character its class.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from airprune.data.files.base import FileParts, FileRequest
from airprune.data.samples import Array, Samples, array_of, joined
from airprune.errors import InvalidValue
from airprune.text import printable

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"


def holds(path: Path) -> bool:
    return path.suffix.lower() == ".json" if path.is_file() else bool(_files(path / "train"))


def read(request: FileRequest) -> FileParts:
    path = request.path
    if path.is_file():
        train, names = _samples([path])
        return FileParts(train=train, class_names=names)
    (train, names), tests = _samples(_files(path / "train")), _files(path / "test")
    return FileParts(train=train, test=_samples(tests)[0] if tests else None, class_names=names)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _samples(paths: list[Path]) -> tuple[Samples, tuple[str, ...]]:
    """Returns the samples of all users, and the names of the classes where they are characters."""
    parts = []
    is_text = False
    for path in paths:
        shown = printable(str(path))
        for user, data in _users(path, shown).items():
            one, is_text = _user(f"{shown}, user {printable(user)}", data)
            if len(one):
                parts.append(Samples(x=one.x, y=one.y, owner=np.full(len(one), user)))
    folder = printable(str(paths[0].parent))
    if not parts:
        raise InvalidValue(folder, "must have samples", f"none in {len(paths)} files")
    return joined(folder, parts), tuple(ALPHABET) if is_text else ()


def _users(path: Path, shown: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidValue(shown, "must be LEAF's JSON", str(error)) from None
    users = found.get("user_data") if isinstance(found, dict) else None
    if not isinstance(users, dict) or not all(
        isinstance(one, dict) and {"x", "y"} <= set(one) for one in users.values()
    ):
        raise InvalidValue(shown, "must be LEAF's JSON: user_data with x and y for each user", "another content")
    return users


def _user(where: str, data: dict[str, Any]) -> tuple[Samples, bool]:
    """Returns the samples of a user, and whether they are characters."""
    x, y = data["x"], data["y"]
    if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
        raise InvalidValue(where, "must have lists x and y of one length", f"{_len(x)} and {_len(y)}")
    if x and all(isinstance(text, str) for text in x):
        if len({len(text) for text in x}) != 1 or not all(isinstance(text, str) and len(text) == 1 for text in y):
            rule = "must have texts of one length with one character as target, or numbers"
            raise InvalidValue(where, rule, repr(x[0][:20]), "Turn other texts or images into numbers first.")
        return Samples(x=_places(where, x), y=_places(where, y)[:, 0]), True
    try:
        rows, targets = array_of(where, x), array_of(where, y)
    except InvalidValue:
        rows = targets = np.array(["ragged"])
    if len(x) and (rows.dtype.kind not in "fiub" or targets.dtype.kind not in "fiub"):
        raise InvalidValue(where, "must have numbers of one shape in x and y", f"{rows.dtype} and {targets.dtype}")
    return Samples(x=rows, y=targets), False


def _len(value: Any) -> str:
    return str(len(value)) if isinstance(value, list) else type(value).__name__


def _places(where: str, texts: list[str]) -> Array:
    """Returns the places of characters in ALPHABET.  [num_texts, length]"""
    place = {character: number for number, character in enumerate(ALPHABET)}
    try:
        return np.array([[place[character] for character in text] for text in texts], dtype=np.int64)
    except KeyError as error:
        raise InvalidValue(where, "must have characters of LEAF's alphabet", repr(error.args[0])) from None
