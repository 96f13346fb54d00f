"""Plans stations that hear several devices at once: groups send in turn, each over the whole bandwidth.

A group has a share t of the time, in which every member sends at its rate r_n of the whole bandwidth: t r_n on average,
Eq. (10) with time in place of bandwidth. So a device's side of the problem is the paper's, Theorem 2 included, with b_n
the time that it needs. Of the edge's budget, Eq. (27), remains

    Σ over groups of max over members of b_n ≤ 1,

and all that schemes do with Σ b ≤ 1 they do with that. Groups of one device are the paper's problem. The optimum gives
all members of a group its time t, and its price is the sum of what they save:

    λ = Σ over members of c_n (D q̂ + a e) r / (W_fully (a r t + q̂)²), without those that have reached ρ_min.

λ^(−1/2) is concave and rises in t, piece by piece, and for one member it is a straight line: a few safeguarded Newton
steps find every group's t at a price, and a root search the price of every edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from airprune.planning.edges import EdgeGroups
from airprune.planning.roots import bracketed_roots

if TYPE_CHECKING:
    from airprune.planning.problem import PlanProblem

Array = np.ndarray

_MAX_STEPS = 100
# Of a time: a step this small leaves an error of its square.
_SETTLED = 1e-12
# Of a level: nearer than this it cannot be computed.
_ROUNDING = 8 * np.finfo(np.float64).eps
# Of a price, to either side of the one that was found: the budget is spent between the two.
_PRICE_MARGIN = 1e-13


@dataclass(frozen=True, eq=False)
class Turns:
    """The groups of a problem's devices.

    Attributes:
      members: devices of each group, sorted by group, edge by edge.
      of_edges: groups of each edge.
      edge_of: place of each group's edge among the edges.  [num_groups]
    """

    members: EdgeGroups
    of_edges: EdgeGroups
    edge_of: Array

    @classmethod
    def of(cls, edge: Array, group: Array) -> Turns:
        _, place = np.unique(edge, return_inverse=True)
        _, number = np.unique(group, return_inverse=True)
        members = EdgeGroups.of(place.astype(np.int64) * (int(number.max()) + 1) + number)
        edge_of = members.ids // (int(number.max()) + 1)
        return cls(members, EdgeGroups.of(edge_of), edge_of)

    def spent(self, share: Array) -> Array:
        """Returns Σ over groups of the largest share of a member.  [num_edges]"""
        return self.of_edges.sum(self.members.max(share))

    def slowest(self, share: Array, per_device: Array) -> Array:
        """Returns Σ over groups of a number of the member with the largest share.  [num_edges]"""
        arranged, count = self.members.arrange(share), self.members.counts
        is_largest = arranged == np.repeat(np.maximum.reduceat(arranged, self.members.starts), count)
        largest = np.maximum.reduceat(np.where(is_largest, self.members.arrange(per_device), 0.0), self.members.starts)
        return self.of_edges.sum(largest)

    def longest(self, share: Array) -> Array:
        """Returns the time of each device's group: the largest share of a member.  [num_devices]"""
        return self.members.spread(self.members.max(share))


def fill_turns(problem: PlanProblem, root: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Returns (times of the devices' groups, price λ of each edge); NaN on edges that have no plan.

    [num_devices] in problem order, [num_edges]

    Args:
      root: s of `peak_root`.
      lower, upper: bounds of the devices' own shares.
    """
    turns = problem.turns
    assert turns is not None
    least, most = turns.members.max(lower), turns.members.max(upper)
    budget = np.maximum(1.0 - _ROUNDING, turns.of_edges.sum(least))
    has_plan = turns.of_edges.sum(least) <= 1.0
    slack = turns.of_edges.sum(most) <= budget
    demand = _Demand.of(problem, turns.members, root, upper, least, most)
    with np.errstate(all="ignore"):  # edges without a plan compute along

        def excess(level: Array) -> Array:
            return np.where(has_plan & ~slack, turns.of_edges.sum(demand.at(level[turns.edge_of])) - budget, 0.0)

        top = demand.ends[-1][1]
        top = turns.of_edges.max(np.where(np.isfinite(top), top, 0.0))
        level = bracketed_roots(excess, np.zeros_like(budget), top)
        below, above = (demand.at((level * (1.0 + side))[turns.edge_of]) for side in (-_PRICE_MARGIN, _PRICE_MARGIN))
        low_sum, high_sum = turns.of_edges.sum(below), turns.of_edges.sum(above)
        part = np.where(high_sum > low_sum, np.clip((budget - low_sum) / (high_sum - low_sum), 0.0, 1.0), 0.0)
        time = below + part[turns.edge_of] * (above - below)
        over = np.maximum(turns.of_edges.sum(time) - budget, 0.0) / turns.of_edges.sum(time - least)  # of rounding
        time = time - np.where(over > 0.0, over, 0.0)[turns.edge_of] * (time - least)
        price = np.where(slack, 0.0, level**-2.0)
    time = np.where(slack[turns.edge_of], most, time)
    time = np.where(has_plan[turns.edge_of], time, np.nan)
    return turns.members.spread(time), np.where(has_plan, price, np.nan)


@dataclass(frozen=True, eq=False)
class _Demand:
    """The times that groups want at a price.  Arrays of devices sorted by group

    Attributes:
      root, slope, bits: s, a r and q̂: a member saves (s / (a r t + q̂))² per time.
      upper: time at which it prunes no more than it must.
      least, most: bounds of the groups' times.  [num_groups]
    """

    groups: EdgeGroups
    root: Array
    slope: Array
    bits: Array
    upper: Array
    least: Array
    most: Array

    @classmethod
    def of(
        cls, problem: PlanProblem, groups: EdgeGroups, root: Array, upper: Array, least: Array, most: Array
    ) -> _Demand:
        arrange = groups.arrange
        return cls(
            groups=groups,
            root=arrange(np.where(np.isfinite(root), root, 0.0)),
            slope=arrange(problem.seconds_per_weight * problem.full_band_rate_bps),
            bits=arrange(problem.bits_per_weight),
            upper=arrange(upper),
            least=least,
            most=most,
        )

    def level(self, time: Array, *, after: bool = False) -> tuple[Array, Array]:
        """Returns (λ^(−1/2) just before, or after, this time of each group, its slope); infinite: nothing is saved."""
        each = self.groups.repeat(time)
        weight = self.slope * each + self.bits
        saves = (each < self.upper if after else each <= self.upper) & (weight > 0.0)
        root = np.where(saves, self.root / np.where(weight > 0.0, weight, 1.0), 0.0)
        saved = self.groups.sum_arranged(root**2)
        fall = self.groups.sum_arranged(root**2 * self.slope / np.where(saves, weight, 1.0))
        return saved**-0.5, fall * saved**-1.5

    @cached_property
    def ends(self) -> list[tuple[Array, Array, Array]]:
        """Returns times at which a member stops saving, within bounds, and the levels before and after; ascending.

        A tuple of arrays [num_groups] for each place in a group, the lower bound first.
        """
        size = int(self.groups.counts.max())
        upper = np.repeat(self.most[:, np.newaxis], size, axis=1)
        row = self.groups.repeat(np.arange(self.groups.num_edges))
        upper[row, np.arange(len(row)) - self.groups.repeat(self.groups.starts)] = self.upper
        upper = np.clip(np.sort(upper, axis=1), self.least[:, np.newaxis], self.most[:, np.newaxis])
        times = [self.least, *upper.T]
        return [(time, self.level(time)[0], self.level(time, after=True)[0]) for time in times]

    def at(self, wanted: Array) -> Array:
        """Returns the largest time of each group within its bounds whose level is at most `wanted`.  [num_groups]"""
        low, after_low = self.ends[0][0], self.ends[0][2]
        high = self.most
        for time, before, after in self.ends[1:]:
            fits = before <= wanted
            low, after_low = np.where(fits, time, low), np.where(fits, after, after_low)
            high = np.where(fits, high, np.minimum(high, time))
        inside = (after_low < wanted) & (low < high)
        time = np.where(inside, high, low)
        for _ in range(_MAX_STEPS if inside.any() else 0):
            level, slope = self.level(time)
            fits = level <= wanted
            low, high = np.where(inside & fits, time, low), np.where(inside & ~fits, time, high)
            nearer = time + (wanted - level) / slope
            nearer = np.where((nearer > low) & (nearer < high), nearer, 0.5 * (low + high))
            far = inside & (np.abs(level - wanted) > _ROUNDING * wanted) & (np.abs(nearer - time) > _SETTLED * time)
            time = np.where(far, nearer, time)
            if not far.any():
                break
        return time
