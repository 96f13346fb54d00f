"""The first keys of a JSON object, without parsing the rest: which round a record is of, before its lists.

Whatever the order of the keys and the blanks between them, the answer is right or it is None.
"""

from __future__ import annotations

import re

# A key and a value that is a plain text or an integer, with the sign that comes before; what follows is looked at only.
_PAIR = rb'"([^"\\]*)"\s*:\s*(?:"([^"\\]*)"|(-?\d{1,18}))(?=\s*[,}])'
_FIRST, _NEXT = re.compile(rb"\s*\{\s*" + _PAIR), re.compile(rb"\s*,\s*" + _PAIR)


def first_values(line: bytes, names: tuple[bytes, ...]) -> dict[bytes, bytes | int] | None:
    """The values of these keys, if only texts and integers come before and between them; None otherwise."""
    found: dict[bytes, bytes | int] = {}
    pair = _FIRST.match(line)
    while pair is not None:
        if pair[1] in names:
            found[pair[1]] = int(pair[3]) if pair[2] is None else pair[2]
            if len(found) == len(names):
                return found
        pair = _NEXT.match(line, pair.end())
    return None
