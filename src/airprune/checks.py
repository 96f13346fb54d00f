"""Checks the values that users give."""

from __future__ import annotations

import operator
import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from airprune.errors import InvalidValue
from airprune.text import shown

FloatArray = NDArray[np.float64]
T = TypeVar("T")
# What numpy raises for ragged lists, words and huge integers; torch for tensors that need their gradient.
_NO_ARRAY = (TypeError, ValueError, OverflowError, RuntimeError)


def quantity(
    field: str,
    value: ArrayLike,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    finite: bool = True,
    way_out: str = "",
) -> FloatArray:
    """Returns `value` as float64, or raises InvalidValue with `field` and the first entry that breaks the rule.

    NaN never passes; `finite=False` lets +inf pass, which is how a transfer that never ends is written.
    """
    try:
        array = np.asarray(value, dtype=np.float64)
    except _NO_ARRAY:
        raise InvalidValue(field, "must be a number or an array of numbers", shown(value), way_out) from None
    good = np.isfinite(array) if finite else ~np.isnan(array)
    # NaN compares as False everywhere, so no rule can let it back in.
    if above is not None:
        good = good & (array > above)
    if at_least is not None:
        good = good & (array >= at_least)
    if at_most is not None:
        good = good & (array <= at_most)
    if not np.all(good):
        first = int(np.argmin(np.ravel(good)))
        got = float(array.flat[first])
        rule = _bounds(above, at_least, at_most)
        if not np.isfinite(got) and (finite or np.isnan(got)):
            rule = f"finite{' and ' + rule if rule else ''}"
        raise InvalidValue(
            field, f"must be {rule}", f"{got:.12g}" + (f" at entry {first}" if array.ndim else ""), way_out
        )
    return array


def one_number(field: str, value: Any, **rules: Any) -> float:
    """Returns `value` as float, or raises InvalidValue, also for several numbers; `rules` are those of `quantity`."""
    array = quantity(field, value, **rules)
    if array.ndim:
        raise InvalidValue(field, "must be one number", f"an array of shape {array.shape}")
    return float(array)


def array_of(field: str, value: Any, rule: str, *, kinds: str, way_out: str = "") -> NDArray[Any]:
    """Returns `value` as an array of one of these dtype kinds ("f", "i", "u", "b"), or raises InvalidValue."""
    try:
        array = np.asarray(value)
    except _NO_ARRAY:
        raise InvalidValue(field, rule, shown(value), way_out) from None
    if array.dtype.kind not in kinds:
        got = shown(value) if array.ndim == 0 else f"{array.dtype} of shape {array.shape}"
        raise InvalidValue(field, rule, got, way_out)
    return array


def _bounds(above: float | None, at_least: float | None, at_most: float | None) -> str:
    if at_least is not None and at_most is not None:
        return f"in [{at_least:g}, {at_most:g}]"
    signs = ((">", above), ("≥", at_least), ("≤", at_most))
    return " and ".join(f"{sign} {bound:g}" for sign, bound in signs if bound is not None)


def whole_number(field: str, value: Any, *, at_least: int = 0, at_most: int | None = None, way_out: str = "") -> int:
    """Returns `value` as int; a float, even 3.0, is refused because counts and seeds are never measured."""
    rule = f"must be a whole number ≥ {at_least}" + ("" if at_most is None else f" and ≤ {at_most}")
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidValue(field, rule, shown(value), way_out) from None
    if number < at_least or (at_most is not None and number > at_most):
        raise InvalidValue(field, rule, shown(number), way_out)
    return number


def instance(field: str, value: T, kind: type, *, way_out: str = "") -> T:
    """Returns `value`, or raises InvalidValue if it is of another type."""
    if not isinstance(value, kind):
        raise InvalidValue(field, f"must be a {kind.__name__}", shown(value), way_out)
    return value


def path_of(field: str, value: Any, *, what: str = "a path", way_out: str = "Example: runs/x") -> Path:
    """Returns the path of a file or folder given as text or as a path; `what` describes it in the error."""
    if not isinstance(value, str | os.PathLike) or "\0" in (text := os.fspath(value)) or not text:
        raise InvalidValue(field, f"must be {what}", shown(value), way_out)
    return Path(text)
