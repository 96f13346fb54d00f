"""Solves the assignment problem, rows to columns at the least sum of costs, exactly and greedily."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def assigned(cost: Array) -> Array:
    """Returns the column of every row; −1 for rows that cannot have one.  [num_rows]

    As many rows as possible are matched, and of all such matchings it is one with the least sum. Infinite: impossible.
    """
    if cost.shape[0] > cost.shape[1]:
        return _inverse(assigned(cost.T), cost.shape[0])
    possible = np.isfinite(cost)
    if not possible.any():
        return np.full(cost.shape[0], -1)
    lowest, highest = cost[possible].min(), cost[possible].max()
    never = (cost.shape[0] + 1) * (highest - lowest or 1.0)  # dearer than all others together
    column = _hungarian(np.where(possible, cost - lowest, never))
    return np.where(possible[np.arange(len(column)), column], column, -1)


def _hungarian(cost: Array) -> Array:
    """Augments row after row along the shortest path, its lengths reduced by prices of rows and columns."""
    num_rows, num_columns = cost.shape
    row_price, column_price = np.zeros(num_rows), np.zeros(num_columns)
    row_of, column_of = np.full(num_columns, -1), np.full(num_rows, -1)
    for start in range(num_rows):
        length, before = np.full(num_columns, np.inf), np.full(num_columns, -1)
        seen = np.zeros(num_columns, dtype=bool)
        row, shortest = start, 0.0
        while True:
            reached = shortest + cost[row] - row_price[row] - column_price
            nearer = ~seen & (reached < length)
            length[nearer], before[nearer] = reached[nearer], row
            end = int(np.argmin(np.where(seen, np.inf, length)))
            shortest = float(length[end])
            seen[end] = True
            if row_of[end] < 0:
                break
            row = int(row_of[end])
        row_price[start] += shortest
        inner = seen & (row_of >= 0)
        row_price[row_of[inner]] += shortest - length[inner]
        column_price[inner] -= shortest - length[inner]
        while True:
            row = int(before[end])
            row_of[end] = row
            column_of[row], end = end, int(column_of[row])
            if row == start:
                break
    return column_of


def _inverse(row_of: Array, num_rows: int) -> Array:
    column = np.full(num_rows, -1)
    column[row_of[row_of >= 0]] = np.flatnonzero(row_of >= 0)
    return column


def greedily_assigned(cost: Array) -> Array:
    """Assigns the cheapest remaining pair again and again (ties: lower row, then column); −1 for rows without one."""
    column, taken = np.full(cost.shape[0], -1), np.zeros(cost.shape[1], dtype=bool)
    for pair in np.argsort(cost, axis=None, kind="stable").tolist():
        row, place = divmod(pair, cost.shape[1])
        if column[row] < 0 and not taken[place] and np.isfinite(cost[row, place]):
            column[row], taken[place] = place, True
    return column


def smallest_worst(cost: Array) -> float:
    """Returns the smallest bound with which every row can have a column that costs at most that, or infinity."""
    if cost.shape[0] > cost.shape[1]:
        return float(np.inf)
    bounds = np.unique(cost[np.isfinite(cost) & (cost >= cost.min(axis=1).max())])
    low, high = 0, len(bounds)
    while low < high:
        middle = (low + high) // 2
        complete = np.all(assigned(np.where(cost <= bounds[middle], 0.0, np.inf)) >= 0)
        low, high = (low, middle) if complete else (middle + 1, high)
    return float(bounds[low]) if low < len(bounds) else float(np.inf)
