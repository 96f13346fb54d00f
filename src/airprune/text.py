"""Formats numbers, names and values, the same in messages, tables, reports and pages."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterable, Mapping
from datetime import date, time
from typing import Any

MISSING = "–"

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 60
_SHOWN.maxlist = _SHOWN.maxtuple = 8


def shown(value: object) -> str:
    """Returns a value of any size and kind in one short line, for a message that refuses it."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, bool | date | time):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length():,} bits"  # Python refuses to print very long ones
    return _SHOWN.repr(list(value) if isinstance(value, tuple) else value)


def printable(name: str) -> str:
    """Returns a name as it is, or with control characters escaped."""
    return name if name.isprintable() else repr(name)


def plain(words: str, most: int | None = None) -> str:
    """Returns words of others, cut to `most` characters, with all that is not printable escaped, line ends too."""
    words = words[:most]
    if words.isprintable():
        return words
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)


def number(value: float | None, form: str, unit: str = "", *, scale: float = 1.0) -> str:
    """Returns a number with its unit; a dash if there is none, or it is not finite.

    `.4g` means four digits; larger numbers are shown to the unit, without a power of ten.
    """
    if value is None or not math.isfinite(value):
        return MISSING
    scaled = value * scale
    if form.endswith("g") and abs(scaled) >= 10.0 ** int(form.strip(",.g") or 6):
        form = ",.0f"
    return format(scaled, form) + unit


def counted(count: int, what: str) -> str:
    """Returns 1 device, 2 devices, 1,000 devices."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def capitalised(text: str) -> str:
    """Returns the text with its first letter in upper case, the others as they are."""
    return text[:1].upper() + text[1:]


def clocks_text(clocks: Iterable[str]) -> str:
    """Returns a sentence on the clock of the times of some runs; empty if it is unknown."""
    found = list(dict.fromkeys(clocks))
    if len(found) > 1:
        return f"Clocks: {'; '.join(found)}. Times by different clocks do not compare."
    return f"Clock: {found[0]}." if found else ""


def readable(value: Any) -> object:
    """Returns a value of a JSON file in a readable form."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False, default=str)


def exact(value: Any) -> str:
    """Returns a value of a scenario to the last digit, as a command line takes it."""
    if value is None or isinstance(value, str):
        return "none" if value is None else value
    return json.dumps(value, ensure_ascii=False)
