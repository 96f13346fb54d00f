"""Chooses one option per device so that the total value is largest and the shares of every edge sum to at most 1.

A multiple-choice knapsack per edge: maximise Σ v_{n,o(n)} subject to Σ b_{n,o(n)} ≤ 1. Its linear relaxation has one
price λ per edge: on the upper concave hull of a device's (share, value) points its steps get worse one after the other,
so the best steps of an edge are taken until one does not fit; that step in part gives the bound. What the whole steps
leave is filled by the single changes that gain the most. Small edges are then solved exactly: partial sums are kept
only if no other needs less for more, and if the relaxation of the devices to come could lift them above the best known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.planning.edges import EdgeGroups

Array = np.ndarray

# Sums of a million shares may lose this much to rounding, so it stays unallocated.
ROUNDING = 1e-12
# Single changes that fill an edge; where it is not solved exactly, what they add after the first few is not seen.
_MOST_FILLS = 64
_FEW_FILLS = 2
# An edge with more devices than this, or more partial sums at a time, is not solved exactly.
_EXACT_DEVICES = 64
_EXACT_EDGES = 200
_MOST_SUMS = 20_000
# Two values that differ by less than this share of the bound are equal.
_EQUAL = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """The option of every device.

    Attributes:
      option: index of each device's option; −1 on edges where not even the smallest options of all devices fit.
        [num_devices]
      share, value: of that option; NaN likewise.  [num_devices]
      total: Σ v of every edge; NaN without a choice.  [num_edges]
      bound: what no choice exceeds: equal to `total` where that is proven to be the optimum.  [num_edges]
      price: λ, the value that one more unit of bandwidth would add; 0 where all have their best option.  [num_edges]
      least: the smallest share that each device needs; infinite for one without any option.  [num_devices]
    """

    option: Array
    share: Array
    value: Array
    total: Array
    bound: Array
    price: Array
    least: Array

    @property
    def fits(self) -> Array:
        """True on edges that have a choice.  [num_edges]"""
        return ~np.isnan(self.total)


@dataclass(frozen=True, eq=False)
class Steps:
    """Hull steps of some devices: `device` improves to `option` for `cost` more share and `gain` more value.

    `efficiency` is gain over cost, and falls from one step of a device to the next, whatever the rounding.
    """

    device: Array
    option: Array
    cost: Array
    gain: Array
    efficiency: Array


def choose_options(groups: EdgeGroups, share: Array, value: Array, *, exact: bool = True) -> Choice:
    """Returns the best option of every device.

    Args:
      groups: the devices of each edge.
      share: b of every option, infinite for one that a device cannot have.  [num_options, num_devices]
      value: v of every option.  [num_options, num_devices]
      exact: whether small edges are solved to the optimum; else their value may be below `bound` by one step.
    """
    first, steps = hull_steps(share, value)
    devices = np.arange(len(first))
    least = share[first, devices]
    edge = groups.spread(np.arange(groups.num_edges))
    needed = groups.sum(least)
    fits = needed <= 1.0
    spare = 1.0 - ROUNDING - needed
    base = groups.sum(value[first, devices])
    option, room, bound, price = _take_steps(first, steps, edge, np.where(fits, np.maximum(spare, 0.0), 0.0), base)
    exact = exact and groups.num_edges <= _EXACT_EDGES and int(groups.counts.max()) <= _EXACT_DEVICES
    option = _fill(edge, share, value, option, room, fits, most=_MOST_FILLS if exact else _FEW_FILLS)
    reached = groups.sum(value[option, devices])
    if exact:
        for k in np.flatnonzero(fits & _above(bound, reached)):
            members = np.flatnonzero(edge == k)
            points = share[:, members], value[:, members]
            capacity = max(1.0 - ROUNDING, float(needed[k]))
            option[members], proven = _optimum(*points, option[members], float(bound[k]), capacity)
            reached[k] = value[option[members], members].sum()
            if proven:
                bound[k] = reached[k]
    has = groups.spread(fits)
    return Choice(
        option=np.where(has, option, -1),
        share=np.where(has, share[option, devices], np.nan),
        value=np.where(has, value[option, devices], np.nan),
        total=np.where(fits, reached, np.nan),
        bound=np.where(fits, np.where(_above(bound, reached), bound, reached), np.nan),
        price=np.where(fits, price, np.nan),
        least=least,
    )


def _above(bound: Array, reached: Array) -> Array:
    """True where the bound exceeds what is reached by more than rounding."""
    return np.asarray(bound - reached > _EQUAL * np.abs(bound))


def hull_steps(share: Array, value: Array) -> tuple[Array, Steps]:
    """Returns (the option with the smallest share of every device, the steps from there along its upper hull).

    Steps of a device come in their order, which is by falling efficiency. Walks all devices at once from hull point to
    hull point: the next is the one with the largest gain per share.
    """
    smallest = share.min(axis=0)
    first = np.argmax(np.where(share == smallest, value, -np.inf), axis=0)
    moving = np.flatnonzero(np.isfinite(smallest))
    share, value = share[:, moving], value[:, moving]
    at_share, at_value = smallest[moving], np.take_along_axis(value, first[None, moving], axis=0)[0]
    none = np.zeros(0, dtype=np.int64)
    found = [(none, none, np.zeros(0), np.zeros(0), np.zeros(0))]
    before = np.full(len(moving), np.inf)
    while len(moving):
        cost, gain = share - at_share, value - at_value
        efficiency = np.zeros_like(gain)
        np.divide(gain, cost, out=efficiency, where=cost > 0.0)
        option = np.argmax(efficiency, axis=0)
        of_each = np.arange(len(moving))
        before = np.minimum(efficiency[option, of_each], np.nextafter(before, 0.0))
        step = (moving, option, cost[option, of_each], gain[option, of_each], before)
        goes_on = before > 0.0
        if not goes_on.all():
            step = tuple(column[goes_on] for column in step)
            share, value = share[:, goes_on], value[:, goes_on]
        found.append(step)
        moving, option, before, of_each = step[0], step[1], step[4], of_each[: len(step[0])]
        at_share, at_value = share[option, of_each], value[option, of_each]
    return first, Steps(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _take_steps(
    first: Array, steps: Steps, edge: Array, spare: Array, base: Array
) -> tuple[Array, Array, Array, Array]:
    """Returns (option of each device, room left, bound and price of each edge) after the best steps that fit."""
    num_edges, option = len(spare), first.copy()
    if not len(steps.device):
        return option, spare.copy(), base.copy(), np.zeros(num_edges)
    step_edge, efficiency = edge[steps.device], steps.efficiency
    order = np.argsort(-efficiency)
    order = order[np.argsort(_short(step_edge[order], num_edges), kind="stable")]
    counts = np.bincount(step_edge, minlength=num_edges)
    ends = np.cumsum(counts)
    begins, sorted_edge = ends - counts, np.repeat(np.arange(num_edges), counts)
    cost, gain = steps.cost[order], steps.gain[order]
    running = np.cumsum(cost, dtype=np.longdouble)
    before = np.concatenate([[0.0], running])[begins]
    too_much = np.flatnonzero(running > (before + spare)[sorted_edge])
    owners, at = np.unique(sorted_edge[too_much], return_index=True)
    stop = ends.copy()
    stop[owners] = too_much[at]
    is_taken = np.arange(len(order)) < stop[sorted_edge]
    taken = order[is_taken]
    option[steps.device[taken]] = steps.option[taken]  # the last of a device's steps is the one that stays
    used = np.bincount(sorted_edge[is_taken], cost[is_taken], minlength=num_edges)
    value = base + np.bincount(sorted_edge[is_taken], gain[is_taken], minlength=num_edges)
    room, broke = np.maximum(spare - used, 0.0), stop < ends
    price = np.where(broke, efficiency[order[np.minimum(stop, len(order) - 1)]], 0.0)
    return option, room, value + room * price, price


def _short(numbers: Array, limit: int) -> Array:
    """Returns whole numbers below the limit in 16 bits if they fit: numpy sorts those by radix, which is faster."""
    return numbers.astype(np.uint16) if limit <= 2**16 else numbers


def _fill(edge: Array, share: Array, value: Array, option: Array, room: Array, fits: Array, *, most: int) -> Array:
    """Makes the single changes that gain the most within the room that is left, one per edge at a time."""
    option, room = option.copy(), room.copy()
    at = np.flatnonzero(fits[edge])
    for _ in range(most):
        if not len(at):
            break
        best, gain = _best_within(share, value, at, option[at], room[edge[at]])
        gainers = np.flatnonzero(gain > 0.0)
        by_gain = gainers[np.argsort(gain[gainers], kind="stable")]
        winner = np.full(len(room), -1)
        winner[edge[at[by_gain]]] = by_gain  # the last one written has the largest gain
        winner = winner[winner >= 0]
        device, chosen = at[winner], best[winner]
        room[edge[device]] -= share[chosen, device] - share[option[device], device]
        option[device] = chosen
        changed = np.zeros(len(room), dtype=bool)
        changed[edge[device]] = True
        at = np.flatnonzero(changed[edge])
    return option


def _best_within(share: Array, value: Array, at: Array, option: Array, room: Array) -> tuple[Array, Array]:
    """Returns (the best option of some devices within their share and the room, what it gains)."""
    share, value, of_each = share[:, at], value[:, at], np.arange(len(at))
    within = np.where(share <= share[option, of_each] + room, value, -np.inf)
    best = np.argmax(within, axis=0)
    return best, within[best, of_each] - value[option, of_each]


def _optimum(share: Array, value: Array, known: Array, bound: float, capacity: float) -> tuple[Array, bool]:
    """Returns (the best options of one edge, whether they are proven best), starting from known ones.

    Partial sums over the devices so far are kept if no other has at least their value for at most their share, and if
    the relaxation of the others within what is left could lift them above the best that is known.
    """
    count = share.shape[1]
    best_value = float(value[known, np.arange(count)].sum())
    slack = _EQUAL * max(abs(bound), 1.0)
    first, steps = hull_steps(share, value)
    smallest = share[first, np.arange(count)], value[first, np.arange(count)]
    rest = [_Relaxation(*smallest, steps, n) for n in range(1, count)]
    sums_share, sums_value, back, proven = np.zeros(1), np.zeros(1), [], True
    for n in range(count):
        useful = _undominated(share[:, n], value[:, n])
        all_share = (sums_share[:, None] + share[useful, n]).ravel()
        all_value = (sums_value[:, None] + value[useful, n]).ravel()
        upper = all_value if n == count - 1 else all_value + rest[n](capacity - all_share)
        kept = np.flatnonzero((all_share <= capacity) & (upper > best_value + slack))
        kept = kept[_undominated(all_share[kept], all_value[kept])]
        if len(kept) > _MOST_SUMS:
            proven = False
            kept = kept[np.argsort(-upper[kept], kind="stable")[:_MOST_SUMS]]
        if not len(kept):
            return known, proven
        back.append((kept // len(useful), useful[kept % len(useful)]))
        sums_share, sums_value = all_share[kept], all_value[kept]
    place = int(np.argmax(sums_value))
    chosen = np.empty(count, dtype=np.int64)
    for n in range(count - 1, -1, -1):
        came, took = back[n]
        chosen[n], place = took[place], int(came[place])
    return chosen, proven


class _Relaxation:
    """The largest value of the last devices within a share, linearly relaxed: concave and piecewise linear.

    Args:
      share, value: of each device's smallest option.  [num_devices]
      steps: hull steps of all devices.
      begin: the first of the devices that count.
    """

    def __init__(self, share: Array, value: Array, steps: Steps, begin: int) -> None:
        own = np.flatnonzero(steps.device >= begin)
        order = own[np.argsort(-steps.efficiency[own], kind="stable")]
        self._share = share[begin:].sum() + np.concatenate([[0.0], np.cumsum(steps.cost[order])])
        self._value = value[begin:].sum() + np.concatenate([[0.0], np.cumsum(steps.gain[order])])

    def __call__(self, room: Array) -> Array:
        within = np.interp(room, self._share, self._value)
        return np.where(room >= self._share[0] * (1.0 - ROUNDING), within, -np.inf)


def _undominated(share: Array, value: Array) -> Array:
    """Returns the points for which no other has at least their value for at most their share, by share."""
    order = np.lexsort((-value, share))
    order = order[np.isfinite(share[order])]
    if not len(order):
        return order
    highest = np.maximum.accumulate(value[order])
    return order[np.concatenate([[True], value[order][1:] > highest[:-1]])]
