"""Association by local search: devices are transferred, and exchanged, while that lowers the cost of the edges.

Costs fall strictly over finitely many assignments, so it ends. An edge without devices costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from airprune.components.component import Array

Group = tuple[int, tuple[int, ...]]
"""A station and the devices that it would serve, ascending."""
Price = Callable[[Sequence[Group]], Array]
"""Returns the cost of each of many groups, none of them empty.  [num_groups]"""

# A smaller fall is rounding.
LEAST_FALL = 1e-12
# Members of the groups that are priced in one go.
_AT_ONCE = 200_000


class Costs:
    """Caches the costs of groups."""

    def __init__(self, price: Price) -> None:
        self._price = price
        self._known: dict[Group, float] = {}

    def __getitem__(self, group: Group) -> float:
        return self._known[group] if group[1] else 0.0

    def ask(self, groups: Iterator[Group]) -> None:
        """Prices those that are not known yet."""
        part: list[Group] = []
        size = 0
        for group in dict.fromkeys(group for group in groups if group[1] and group not in self._known):
            part.append(group)
            size += len(group[1])
            if size >= _AT_ONCE:
                self._add(part)
                part, size = [], 0
        if part:
            self._add(part)

    def _add(self, groups: list[Group]) -> None:
        self._known.update(zip(groups, np.asarray(self._price(groups)).tolist(), strict=True))


def members(edge: Array, k: int, *, without: int = -1, plus: int = -1) -> Group:
    """Station k and its devices, perhaps with one less or one more."""
    here = edge == k
    if without >= 0:
        here[without] = False
    if plus >= 0:
        here[plus] = True
    return k, tuple(np.flatnonzero(here).tolist())


def descend(start: Array, num_edges: int, price: Price, *, worst: bool = False, exchanges: bool = True) -> Array:
    """Returns the assignment at which no transfer or exchange lowers the sum (or the worst) of the costs of the edges.

    Devices in their order take their best transfer; only if no device has one, the best exchange of two devices is
    made.
    """
    edge, costs = np.array(start, dtype=np.int64), Costs(price)
    combine: Callable[[Array], float] = np.max if worst else np.sum
    while True:
        if _transfers(edge, num_edges, costs, combine):
            continue
        if not (exchanges and _exchange(edge, num_edges, costs, combine)):
            return edge


def _current(edge: Array, num_edges: int, costs: Costs) -> Array:
    groups = [members(edge, k) for k in range(num_edges)]
    costs.ask(iter(groups))
    return np.array([costs[group] for group in groups])


def _transfers(edge: Array, num_edges: int, costs: Costs, combine: Callable[[Array], float]) -> bool:
    """Makes one pass over all devices, in place; returns whether a device moved."""
    moved, stale = False, True
    for n in range(len(edge)):
        if stale:  # all that the rest of the pass will ask for, at once
            now = _current(edge, num_edges, costs)
            costs.ask(
                members(edge, k, **({"without": m} if k == edge[m] else {"plus": m}))
                for m in range(n, len(edge))
                for k in range(num_edges)
            )
            stale = False
        totals = np.full(num_edges, combine(now))
        for k in range(num_edges):
            if k != edge[n]:
                after = now.copy()
                after[edge[n]] = costs[members(edge, int(edge[n]), without=n)]
                after[k] = costs[members(edge, k, plus=n)]
                totals[k] = combine(after)
        best = int(np.argmin(totals))
        if totals[best] < combine(now) - LEAST_FALL:
            edge[n] = best
            moved = stale = True
    return moved


def _exchange(edge: Array, num_edges: int, costs: Costs, combine: Callable[[Array], float]) -> bool:
    """Makes the best exchange of two devices on different edges, in place; returns whether there was one."""
    now = _current(edge, num_edges, costs)
    pairs = [(i, j) for i in range(len(edge)) for j in range(i + 1, len(edge)) if edge[i] != edge[j]]
    costs.ask(group for i, j in pairs for group in _exchanged(edge, i, j))
    best, least = None, combine(now) - LEAST_FALL
    for i, j in pairs:
        after = now.copy()
        for group in _exchanged(edge, i, j):
            after[group[0]] = costs[group]
        if combine(after) < least:
            best, least = (i, j), combine(after)
    if best is None:
        return False
    edge[list(best)] = edge[list(reversed(best))]
    return True


def _exchanged(edge: Array, i: int, j: int) -> tuple[Group, Group]:
    return members(edge, int(edge[i]), without=i, plus=j), members(edge, int(edge[j]), without=j, plus=i)


def as_bands(groups: Sequence[Group]) -> tuple[Array, Array, Array]:
    """(devices, station of each, band of each): every group on a band of its own."""
    sizes = [len(devices) for _, devices in groups]
    device = np.concatenate([np.array(devices, dtype=np.int64) for _, devices in groups])
    station = np.repeat([k for k, _ in groups], sizes)
    return device, station, np.repeat(np.arange(len(groups)), sizes)
