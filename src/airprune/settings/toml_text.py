"""TOML to plain values and back. Reading is the standard library's; writing needs only what a scenario holds.

TOML has no null, so None is written as the word "none", which every optional field reads back as None.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airprune import files
from airprune.errors import InvalidValue

MAX_BYTES = 2**20
_COMMENT_COLUMN = 40  # a longer line does not move the comments of the others
MAX_DOTS_PER_LINE = 200  # the standard parser takes time in the square of a dotted key's length

_PLACE = re.compile(r"^(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$", re.DOTALL)


def read_text(path: Path, *, way_out: str) -> str:
    """The file as text, refused beyond `MAX_BYTES`; `way_out` is what to do if there is no such file."""
    name = repr(str(path))
    try:
        with files.open_named(path) as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidValue(
            "Scenario.load", "must be given a readable TOML file", f"{name} ({reason})", way_out
        ) from None
    return text_of(content, source=str(path))


def text_of(content: bytes, *, source: str) -> str:
    """Returns the content of a file as text."""
    _check_size(source, len(content))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidValue(f"{source}, line {line},", "must be UTF-8 text", "other bytes") from None


def parse(text: str, *, source: str) -> dict[str, Any]:
    """The values of a TOML text; a fault is one sentence with its line."""
    _check_size(source, len(text) if text.isascii() else len(text.encode(errors="replace")))
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if (dots := line.count(".")) > MAX_DOTS_PER_LINE:
            raise InvalidValue(f"{source}, line {number},", f"must have at most {MAX_DOTS_PER_LINE} dots", dots)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.match(str(error))
        what, at, column = place.group("what", "line", "column") if place else (str(error), None, None)
        number = int(at) if at else len(text.rstrip().split("\n"))
        where = f"at column {column}" if column else "at the end"
        # What is no TOML is perhaps no scenario, so none of it is shown.
        raise InvalidValue(
            f"{source}, line {number},", "must be valid TOML", "other text", f"{what}, {where}."
        ) from None
    except RecursionError:
        raise InvalidValue(source, "must be valid TOML", "brackets nested too deeply") from None
    except ValueError:  # an integer of thousands of digits
        raise InvalidValue(source, "must be valid TOML", "a number with too many digits") from None


def word(text: str) -> Any:
    """A value as typed on a command line: a TOML literal if it is one, otherwise the text itself."""
    try:
        values = parse(f"value = {text}", source="override")
    except InvalidValue:
        return text
    return values["value"] if list(values) == ["value"] else text


def literal(value: Any) -> str:
    """A plain value in TOML, such that reading it gives the same value to the last bit."""
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal(entry) for entry in value)}]"
    return json.dumps(value, ensure_ascii=False)  # without control characters, a JSON string is a TOML string


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested values by dotted key, whatever the depth; an empty table leaves no key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.update({f"{key}.{name}": entry for name, entry in flat(value).items()})
        else:
            found[key] = value
    return found


def written(values: Mapping[str, Any], comments: Mapping[tuple[str, ...], str] | None = None) -> str:
    """Top-level values, then one table per nested mapping, whatever the depth.

    Args:
      comments: what stands behind a value or a table's name, by its path.
    """
    return "\n".join(_lines(values, (), comments or {})) + "\n"


def _lines(values: Mapping[str, Any], path: tuple[str, ...], comments: Mapping[tuple[str, ...], str]) -> list[str]:
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    lines = _aligned([(f"{key} = {literal(value)}", comments.get((*path, key), "")) for key, value in plain.items()])
    if path:
        table = f"[{'.'.join(map(_bare, path))}]"
        lines = ["", *_aligned([(table, comments.get(path, ""))]), *lines]
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += _lines(value, (*path, key), comments)
    return lines


def _aligned(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Comments in one column, where most of the lines leave room for it."""
    width = max((len(text) for text, comment in lines if comment and len(text) <= _COMMENT_COLUMN), default=0)
    return [f"{text:<{width}}  # {comment}" if comment else text for text, comment in lines]


def _bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _check_size(source: str, num_bytes: int) -> None:
    if num_bytes > MAX_BYTES:
        raise InvalidValue(source, f"must be at most {MAX_BYTES:,} bytes", "more", "Is this a scenario?")
