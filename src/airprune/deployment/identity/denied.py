"""Certificates that are refused before they expire. By serial number, so that a renewed kit is let in again.

# denied.toml: serial number = whose it was
[denied]
1f0c…9a = "d0"
"""

from __future__ import annotations

import re
from pathlib import Path

from airprune.deployment.identity.tables import read_table
from airprune.errors import InvalidValue
from airprune.files import replacing
from airprune.settings import toml_text
from airprune.text import shown

FILE = "denied.toml"
_SERIAL = re.compile(r"[0-9a-f]{1,40}")


def load_denied(path: Path) -> frozenset[str]:
    """Returns the serial numbers of a deny list; none if there is no such file."""
    return frozenset(_names_by_serial(path))


def deny(path: Path, serial: str, name: str) -> None:
    """Adds to the list, which at no time is half-written."""
    names = _names_by_serial(path)
    if serial not in names:
        with replacing(path) as file:
            file.write(toml_text.written({"denied": {**names, serial: name}}).encode())


def _names_by_serial(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    entries = read_table(path).get("denied", {})
    if not isinstance(entries, dict):
        raise InvalidValue(f"{path}: denied", "must be a table of serial numbers", shown(entries))
    for serial in entries:
        if not _SERIAL.fullmatch(serial):
            raise InvalidValue(f"{path}: denied", "must have serial numbers in hex for keys", shown(serial))
    return entries
