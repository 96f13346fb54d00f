"""Output: results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console


def say(message: str) -> None:
    """Prints one line on stderr as it is: no markup, no wrapping."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def stdout_console() -> Console:
    """Returns a console as wide as the terminal, or in a file or a pipe as COLUMNS says, by default 100."""
    from rich.console import Console

    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if is_known else 100, highlight=False)


def records(columns: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Returns columns as one dict per row, with NaN and infinities as None, since JSON has neither."""
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
    """Prints a result for machines: strict JSON on one line."""
    json.dump(value, sys.stdout, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    sys.stdout.write("\n")
    sys.stdout.flush()
