"""The first keys of a JSON object, without parsing the rest: which round a record is of, before its lists.

Whatever the order of the keys and the blanks between them, the answer is right or it is None.
"""

from __future__ import annotations

import json
import re
from typing import Any

_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def first_values(line: bytes, names: tuple[str, ...], *, within_bytes: int) -> dict[str, Any] | None:
    """The values of these keys, if they are all met within so many bytes; None otherwise."""
    text = line[:within_bytes].decode(errors="replace")
    is_cut = len(line) > within_bytes
    found: dict[str, Any] = {}
    at = _after(text, 0, "{")
    try:
        while at is not None:
            key, at = _DECODER.raw_decode(text, _blanks_from(text, at))
            at = _after(text, at, ":")
            if at is None:
                return None
            value, at = _DECODER.raw_decode(text, _blanks_from(text, at))
            if is_cut and at == len(text):  # a number may go on
                return None
            if key in names:
                found[key] = value
                if len(found) == len(names):
                    return found
            at = _after(text, at, ",")
    except (ValueError, RecursionError, TypeError):
        return None
    return None


def _blanks_from(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def _after(text: str, at: int, sign: str) -> int | None:
    """The place behind this sign, which comes next; None if something else does."""
    at = _blanks_from(text, at)
    return at + 1 if text.startswith(sign, at) else None
