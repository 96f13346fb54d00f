"""The density of very many devices: the number in each cell of a grid, all of them counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from airprune.web.answers import numbers

Array = np.ndarray

# Along the longer side of the map: cells of a few pixels, which the eye still tells apart.
MAX_CELLS = 100
_STEPS = (1.0, 2.0, 5.0, 10.0)


def density(position_m: Array, ratio: Array) -> dict[str, Any]:
    """A grid of square cells over all devices, as JSON values.

    `count` has one number per cell, west to east within a row, rows from south to north; `pruning` is the mean ratio of
    the cell's devices that have one, in whole percent, null if none has. Every device is in exactly one cell.

    Args:
      position_m: [num_devices, 2]
      ratio: NaN where there is no plan.  [num_devices]
    """
    low, high = position_m.min(axis=0), position_m.max(axis=0)
    cell_m = cell_size_m(float((high - low).max()))
    west, south = (math.floor(edge / cell_m) for edge in low.tolist())
    columns, rows = (
        math.floor(edge / cell_m) + 1 - first for edge, first in zip(high.tolist(), (west, south), strict=True)
    )
    column = np.floor(position_m[:, 0] / cell_m).astype(np.int64) - west
    cell = (np.floor(position_m[:, 1] / cell_m).astype(np.int64) - south) * columns + column
    count = np.bincount(cell, minlength=columns * rows)
    planned = np.isfinite(ratio)
    num_planned = np.bincount(cell, planned, minlength=columns * rows)
    total = np.bincount(cell, np.where(planned, ratio, 0.0), minlength=columns * rows)
    mean = np.divide(total, num_planned, out=np.full(len(total), np.nan), where=num_planned > 0)
    return {
        "cell_m": cell_m,
        "west_m": west * cell_m,
        "south_m": south * cell_m,
        "columns": columns,
        "count": count.tolist(),
        "pruning": [None if value is None else round(value) for value in numbers(100.0 * mean)],
    }


def cell_size_m(longest_m: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, … m, or of fractions of that kind, that needs at most `MAX_CELLS` a side."""
    wanted = max(longest_m, 1e-3) / (MAX_CELLS - 1)  # one more than the length holds, where the ends lie within cells
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(step * power for step in _STEPS if step * power >= wanted * (1.0 - 1e-12))
