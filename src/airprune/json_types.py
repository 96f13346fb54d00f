"""Values of a JSON file as typed ones. What is of another type is unreadable: nothing is guessed or converted."""

from __future__ import annotations

import math
from typing import Any

_INT64 = 2**63


class Unreadable(Exception):
    """A value is not of the type it should have; whoever reads a file turns this into a sentence or a gap."""


def whole(value: Any) -> int:
    """An integer that 64 bits hold."""
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise Unreadable
    return value


def maybe_number(value: Any) -> float | None:
    """A finite number as it is written, 1 or 1.0, or none."""
    if value is None or (type(value) is float and math.isfinite(value)):
        return value
    return whole(value)


def maybe_whole(value: Any) -> int | None:
    return None if value is None else whole(value)


def whole_list(values: Any) -> tuple[int, ...]:
    _check_list(values, int)
    if values and not -_INT64 <= min(values) <= max(values) < _INT64:
        raise Unreadable
    return tuple(values)


def number_list(values: Any) -> tuple[float | None, ...]:
    """Finite numbers as they are written, 1 or 1.0, with None for no value."""
    _check_list(values, int, float, type(None))
    try:
        is_finite = all(
            map(math.isfinite, [value for value in values if value is not None] if None in values else values)
        )
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


def _check_list(values: Any, *types: type) -> None:
    if type(values) is not list or not set(map(type, values)) <= set(types):
        raise Unreadable
