"""Which code each device sends with: bits per weight chosen within the deadline so that the least is lost.

A ladder is a list of codes, each with more bits and less error than the one before. With W weights, rate r and τ
seconds for its upload, a device needs the share (R W + e) / (r τ) for R bits per weight: a straight line in R, W / (r
τ) per bit. Minimise Σ c_n E(R_n) over the rungs subject to Σ b_n ≤ 1 on every edge: a knapsack of steps. A step from
one rung to the next saves c ΔE for ΔR W / (r τ) of the band. On the lower convex hull of the ladder a device's steps
get worse one after the other, so taking the best steps of an edge until the next one does not fit is the exact
optimum but for that one step: what is lost is never more than what the step would have saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.checks import quantity
from airprune.errors import InvalidValue

if TYPE_CHECKING:
    from airprune.planning.problem import PlanProblem

Array = np.ndarray

# What sums of a million shares may lose to rounding: so much of the band is left alone.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Ladder:
    """Codes that a planner may choose from.  Each [num_codes]

    Attributes:
      bits_per_weight: ascending.
      error: the share of an update's energy that a code loses, descending: ‖Δ − sent‖² / ‖Δ‖².
    """

    bits_per_weight: Any
    error: Any

    def __post_init__(self) -> None:
        for name in ("bits_per_weight", "error"):
            array = np.atleast_1d(quantity(f"Ladder.{name}", getattr(self, name), at_least=0.0))
            object.__setattr__(self, name, array)
        if self.bits_per_weight.shape != self.error.shape or self.error.ndim != 1:
            shapes = f"{self.bits_per_weight.shape} and {self.error.shape}"
            raise InvalidValue("Ladder", "needs one error for each bits_per_weight", shapes)
        if np.any(np.diff(self.bits_per_weight) <= 0.0):
            raise InvalidValue("Ladder.bits_per_weight", "must ascend", self.bits_per_weight.tolist())

    @cached_property
    def hull(self) -> Array:
        """Rungs worth a step: the lower convex hull, from the cheapest code to the best one.  Indices"""
        chosen: list[int] = []
        for rung in range(len(self.error)):
            while chosen and self.error[chosen[-1]] <= self.error[rung]:
                break
            else:
                while len(chosen) > 1 and self._saving(chosen[-2], chosen[-1]) <= self._saving(chosen[-1], rung):
                    chosen.pop()
                chosen.append(rung)
        return np.array(chosen)

    def _saving(self, lower: int, upper: int) -> float:
        """Error saved per bit between two rungs."""
        rise = self.bits_per_weight[upper] - self.bits_per_weight[lower]
        return float((self.error[lower] - self.error[upper]) / rise)


@dataclass(frozen=True, eq=False)
class Climb:
    """Where everybody stands.

    Attributes:
      rung: of the ladder; −1 on edges where not even the cheapest code of all devices fits.  [num_devices]
      share: the band that it needs; NaN likewise.  [num_devices]
      price: the error that one more unit of band would save; 0 where all have the best code.  [num_edges]
    """

    rung: Array
    share: Array
    price: Array


def climb(problem: PlanProblem, ladder: Ladder, weights: Array, upload_s: Array, *, fair: bool = False) -> Climb:
    """The rung of every device.

    Args:
      problem: its `fixed_bits` come on top of every code's bits; its `bits_per_weight` is not read.
      weights: W_n, what each device sends.  [num_devices]
      upload_s: τ_n, how long its upload may take.  [num_devices]
      fair: let nobody climb a step before all on the edge have climbed the one below: the largest least number of bits.
    """
    groups = problem.groups
    hull = ladder.hull
    rates, errors = ladder.bits_per_weight[hull], ladder.error[hull]
    with np.errstate(divide="ignore", invalid="ignore"):
        per_bit = weights / (problem.full_band_rate_bps * upload_s)
        least = (rates[0] * weights + problem.fixed_bits) / (problem.full_band_rate_bps * upload_s)
    cannot = ~((upload_s > 0.0) & np.isfinite(least))
    least = groups.arrange(np.where(cannot, np.inf, least))
    spare = (1.0 - _ROUNDING) - groups.sum_arranged(least)
    fits = spare >= 0.0
    taken, price = _steps_taken(
        groups.repeat(np.arange(groups.num_edges)),
        groups.arrange(np.where(cannot, 0.0, per_bit)),
        groups.arrange(problem.objective_weight),
        np.diff(rates),
        -np.diff(errors) / np.diff(rates),
        np.where(fits, spare, 0.0),
        fair=fair,
    )
    with np.errstate(invalid="ignore"):
        share = least + (rates[taken] - rates[0]) * groups.arrange(per_bit)
    return Climb(
        rung=groups.restore(np.where(groups.repeat(fits), hull[taken], -1)),
        share=groups.restore(np.where(groups.repeat(fits), share, np.nan)),
        price=np.where(fits, price, np.nan),
    )


def _steps_taken(
    edge: Array, per_bit: Array, weight: Array, rises: Array, savings: Array, spare: Array, *, fair: bool
) -> tuple[Array, Array]:
    """(steps of each device, value of the first step not taken on each edge): the best first, while the band lasts."""
    num_devices, num_steps, num_edges = len(edge), len(rises), len(spare)
    if num_steps == 0:
        return np.zeros(num_devices, dtype=np.int64), np.zeros(num_edges)
    with np.errstate(divide="ignore"):
        value = (weight / per_bit)[:, None] * savings
    cost = per_bit[:, None] * rises
    best_first, step_edge = -value.ravel(), np.repeat(edge, num_steps)
    low_first = (np.tile(np.arange(num_steps), num_devices),) if fair else ()
    order = np.lexsort((best_first, *low_first, step_edge))
    running = np.cumsum(cost.ravel()[order], dtype=np.longdouble)
    first = np.searchsorted(edge, np.arange(num_edges)) * num_steps
    before = np.concatenate([[0.0], running])[first]
    sorted_edge = step_edge[order]
    fits = running - before[sorted_edge] <= spare[sorted_edge]
    # Of each edge, what comes before the first step that does not fit.
    stop = np.minimum.reduceat(np.where(fits, len(fits), np.arange(len(fits))), first)
    is_taken = np.arange(len(fits)) < stop[sorted_edge]
    taken = np.bincount(order[is_taken] // num_steps, minlength=num_devices)
    ends = np.append(first[1:], len(fits))
    price = np.where(stop < ends, value.ravel()[order][np.minimum(stop, len(fits) - 1)], 0.0)
    return taken, price
