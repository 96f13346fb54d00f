"""Defines the columns of tables, and converts their cells to arrays.

Each conversion first tries all cells at once and looks at them one by one only if that fails.
"""

from __future__ import annotations

import math
import operator
import re
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from airprune.errors import BadTable, InvalidValue
from airprune.text import shown

MAX_LABEL_CHARS = 256

# float() also takes 1_000, nan and the digits of other scripts; a table may not.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Refused(Exception):
    """A row breaks a rule; the caller that catches this knows its line.

    Attributes:
      problem: the rule, and what was got.
      rule: the same for files of others, without anything that stands in them.
    """

    def __init__(self, problem: str, index: int = 0, *, rule: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.rule = problem if rule is None else rule
        self.index = index


def row_error(source: str, line: int, row: int, problem: str, *, is_list: bool) -> BadTable:
    """Returns the error for 0-based row `row`, which is counted too if the source is a JSON list."""
    return BadTable(source, line, f"{problem} (device {row + 1} of the list)." if is_list else f"{problem}.")


def clipped(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def cell_shown(value: object) -> str:
    """Returns a cell or JSON value for a message; JSON objects come as tuples of pairs."""
    if isinstance(value, tuple):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "null" if value is None else shown(value)


def refused(rule: str, got: str, index: int, hint: str = "") -> Refused:
    return Refused(f"{rule}, got {got}{hint}", index, rule=rule)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column that a table may or must have.

    Attributes:
      name: lower case; headers are compared without regard to case.
      kind: `label` names a device or an edge, `number` is a finite float.
      default: value of an absent column or an empty cell when not required. Without one, an absent column
        stays absent and an empty number is NaN.
      minimum, maximum: inclusive bounds; `above` and `below` are exclusive ones.
      whole: only whole numbers.
      explanation: a few words with the unit, added to messages.
    """

    name: str
    kind: Literal["label", "number"] = "number"
    required: bool = False
    default: float | str | None = None
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    whole: bool = False
    explanation: str = ""

    def __post_init__(self) -> None:
        if self.kind == "label" and not self.required and self.default is None:
            raise InvalidValue(f"Column {self.name}", "must be required or have a default", "neither")

    def array(self, cells: Sequence[Any], *, text: bool) -> np.ndarray:
        """Returns the cells as an array; `text` if they come from CSV, else they are JSON values, None if absent."""
        convert = _labels if self.kind == "label" else _numbers
        return convert(self, cells, text=text)

    @property
    def bounds(self) -> list[tuple[str, Callable[[Any, Any], Any], float]]:
        candidates = (
            (">=", operator.ge, self.minimum),
            (">", operator.gt, self.above),
            ("<=", operator.le, self.maximum),
            ("<", operator.lt, self.below),
        )
        return [(sign, keeps, bound) for sign, keeps, bound in candidates if bound is not None]

    def accepts(self, values: Any) -> Any:
        """True for values that are finite and keep the rule; elementwise on an array, or on one float."""
        fine = abs(values) < math.inf  # false for NaN as well
        for _, keeps, bound in self.bounds:
            fine = fine & keeps(values, bound)
        return fine & (np.floor(values) == values) if self.whole else fine

    def rule_broken_by(self, value: float) -> str:
        """Returns the rule that a refused value breaks, e.g. `must be > 0`."""
        if not math.isfinite(value):
            return "must be a finite number"
        if self.whole and value != math.floor(value):
            return "must be a whole number"
        return "must be " + " and ".join(f"{sign} {bound:.12g}" for sign, _, bound in self.bounds)


def _numbers(column: Column, cells: Sequence[Any], *, text: bool) -> np.ndarray:
    joined = "".join(cells) if text else ""
    if "_" not in joined and joined.isascii() and (text or set(map(type, cells)) <= {int, float}):
        with suppress(ValueError, OverflowError):
            values = np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
            if column.accepts(values).all():
                return values
    return np.array([_number(column, cell, index, text=text) for index, cell in enumerate(cells)])


def _number(column: Column, cell: Any, index: int, *, text: bool) -> float:
    if text:
        cell = cell.strip() or None
    if cell is None:
        if column.required:
            raise Refused(f"{column.name} is empty", index)
        return math.nan if column.default is None else float(column.default)
    readable = bool(_NUMBER.fullmatch(cell)) if text else type(cell) in (int, float)
    try:
        value = float(cell) if readable else math.nan
    except OverflowError:
        value = math.inf
    if column.accepts(value):
        return value
    got = clipped(str(cell)) if readable else cell_shown(cell)
    hint = " (write the decimals after a point)" if text and "," in cell else ""
    meaning = f" ({column.explanation})" if column.explanation else ""
    raise refused(f"{column.name}{meaning} {column.rule_broken_by(value)}", got, index, hint)


def _labels(column: Column, cells: Sequence[Any], *, text: bool) -> np.ndarray:
    clean: list[Any] = list(map(str.strip, cells)) if text else []
    if not (all(clean) and max(map(len, clean), default=math.inf) <= MAX_LABEL_CHARS and "".join(clean).isprintable()):
        clean = [_label(column, cell, index, text=text) for index, cell in enumerate(cells)]
    with suppress(ValueError, OverflowError):
        integers = list(map(int, clean))
        if clean == (list(map(str, integers)) if text else integers):  # 007, +7 and JSON's "7" stay text
            return np.array(integers, dtype=np.int64)
    distinct = {label: label for label in clean}  # one string per edge, not one per device
    labels = np.empty(len(clean), dtype=object)
    labels[:] = [distinct[label] for label in clean]
    return labels


def _label(column: Column, cell: Any, index: int, *, text: bool) -> Any:
    if type(cell) is int:
        if not -(2**63) <= cell < 2**63:
            raise refused(f"{column.name} must fit in 64 bits", cell_shown(cell), index, "; write it in quotes")
        return cell
    if cell is not None and type(cell) is not str:
        raise refused(f"{column.name} must be an integer or a string", cell_shown(cell), index)
    label = (cell or "").strip()
    if not label:
        if column.required:
            raise Refused(f"{column.name} is empty", index)
        return str(column.default) if text else column.default
    if len(label) > MAX_LABEL_CHARS:
        raise refused(f"{column.name} must have at most {MAX_LABEL_CHARS} characters", cell_shown(label), index)
    # Cs: half a surrogate pair, which JSON can spell but no file can hold.
    if not label.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in label):
        raise refused(f"{column.name} must have no control characters", cell_shown(label), index)
    return label
