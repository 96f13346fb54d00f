"""Where words go: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console


def say(message: str) -> None:
    """One line to the user on stderr, as it is: no markup, no wrapping."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def stdout_console() -> Console:
    """Tables on a terminal as wide as it is; 100 columns when the output is a file or a pipe."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 100, highlight=False)


def records(columns: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Columns → one dict per row, with NaN and infinities as None, since JSON has neither."""
    lists = [_json_values(column) for column in columns.values()]
    names = tuple(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def _json_values(column: np.ndarray) -> list[Any]:
    import numpy as np  # here, since messages do without

    values = column.tolist()
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        return [value if math.isfinite(value) else None for value in values]
    return values


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """The result for machines: strict JSON on one line."""
    json.dump(value, sys.stdout, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    sys.stdout.write("\n")
    sys.stdout.flush()
