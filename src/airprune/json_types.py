"""Frozen dataclasses to and from JSON. What is of another type is unreadable: nothing is guessed or converted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar, get_type_hints

_INT64 = 2**63

R = TypeVar("R", bound="JsonRecord")


class Unreadable(Exception):
    """A value is not of the type it should have; the reader of a file turns this into a sentence or a gap."""


class JsonRecord:
    """The base of dataclasses that stand for one JSON object.

    The order of the fields is that of the keys. A field without a default is always written, as null if it is None. One
    with a default is left out where it is None; a number that was measured but is none (NaN) is written as null. Keys
    without a field are kept in `extra` and written last. Where a file has records of several kinds, `kind` tells which.
    """

    kind: ClassVar[str] = ""
    required: ClassVar[tuple[str, ...]] = ()
    extra: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        written: dict[str, Any] = {"kind": self.kind} if self.kind else {}
        for name, (_, is_optional) in _fields_of(type(self)).items():
            value = getattr(self, name)
            if value is not None or not is_optional:
                written[name] = _json_value(value)
        return written | self.extra

    @classmethod
    def read(cls: type[R], found: Mapping[str, Any], *, only: frozenset[str] | None = None) -> R:
        """From a JSON object; a key that is not there, or not wanted, has no value, unless it is required."""
        known = _fields_of(cls)
        values: dict[str, Any] = {}
        for name, (read, is_optional) in known.items():
            if name in cls.required:
                values[name] = read(found.get(name))
            elif name in found and (only is None or name in only):
                values[name] = _optional(read, found[name]) if is_optional else read(found[name])
            elif not is_optional:
                values[name] = read(_NOTHING.get(read))
        values["extra"] = {key: value for key, value in found.items() if key not in known and key != "kind"}
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class EdgeCoverage:
    """How the prunable weights of one edge were kept.

    Attributes:
      min_count: Γ*, the fewest devices that kept a weight somebody kept.
      num_uncovered: weights kept by nobody.
    """

    edge: int
    min_count: int
    num_uncovered: int


class _Field(NamedTuple):
    read: Callable[[Any], Any]
    is_optional: bool


def _find_fields(cls: Any) -> dict[str, _Field]:
    types = get_type_hints(cls)
    return {
        entry.name: _Field(_READERS[types[entry.name]], entry.default is not MISSING)
        for entry in fields(cls)
        if entry.name != "extra"
    }


_fields_of: Callable[[type], dict[str, _Field]] = cache(_find_fields)


def _json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [vars(entry) for entry in value] if value and isinstance(value[0], EdgeCoverage) else list(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _optional(read: Callable[[Any], Any], value: Any) -> Any:
    """A number that is there but null was measured and is no number, unlike one that is not there."""
    if value is None:
        return math.nan if read is maybe_number else None
    return read(value)


def whole(value: Any) -> int:
    """An integer that 64 bits hold."""
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise Unreadable
    return value


def maybe_whole(value: Any) -> int | None:
    return None if value is None else whole(value)


def maybe_number(value: Any) -> float | None:
    """A finite number as it is written, 1 or 1.0, or none."""
    if value is None or (type(value) is float and math.isfinite(value)):
        return value
    return whole(value)


def number(value: Any) -> float:
    found = maybe_number(value)
    if found is None:
        raise Unreadable
    return found


def flag(value: Any) -> bool:
    if type(value) is not bool:
        raise Unreadable
    return value


def maybe_flag(value: Any) -> bool | None:
    return None if value is None else flag(value)


def text(value: Any) -> str:
    if type(value) is not str:
        raise Unreadable
    return value


def maybe_text(value: Any) -> str | None:
    return None if value is None else text(value)


def whole_list(values: Any) -> tuple[int, ...]:
    _check_list(values, int)
    if values and not -_INT64 <= min(values) <= max(values) < _INT64:
        raise Unreadable
    return tuple(values)


def number_list(values: Any) -> tuple[float | None, ...]:
    """Finite numbers as they are written, 1 or 1.0, with None for no value."""
    _check_list(values, int, float, type(None))
    given = [value for value in values if value is not None] if None in values else values
    try:
        is_finite = all(map(math.isfinite, given))
    except OverflowError:  # an integer beyond float64
        is_finite = False
    if not is_finite:
        raise Unreadable
    return tuple(values)


def text_list(values: Any) -> tuple[str, ...]:
    _check_list(values, str)
    return tuple(values)


def counts(value: Any) -> dict[str, int]:
    if type(value) is not dict:
        raise Unreadable
    whole_list(list(value.values()))
    return dict(value)


def coverage_list(values: Any) -> tuple[EdgeCoverage, ...]:
    _check_list(values, dict)
    names = ("edge", "min_count", "num_uncovered")
    return tuple(EdgeCoverage(**{name: whole(value.get(name)) for name in names}) for value in values)


def _check_list(values: Any, *types: type) -> None:
    if type(values) is not list or not set(map(type, values)) <= set(types):
        raise Unreadable


_READERS: dict[Any, Callable[[Any], Any]] = {
    int: whole,
    int | None: maybe_whole,
    float | None: maybe_number,
    float: number,
    bool: flag,
    bool | None: maybe_flag,
    str: text,
    str | None: maybe_text,
    tuple[int, ...]: whole_list,
    tuple[float | None, ...]: number_list,
    tuple[float | None, ...] | None: number_list,
    tuple[str, ...]: text_list,
    tuple[EdgeCoverage, ...]: coverage_list,
    dict[str, int]: counts,
}
# What stands for a key that is not there, where that is not null.
_NOTHING: dict[Callable[[Any], Any], Any] = {
    whole_list: [],
    number_list: [],
    text_list: [],
    coverage_list: [],
    counts: {},
}
