"""Chooses the compression level of each device: bits per weight within the deadline, so that the least is lost.

A `Ladder` is a set of levels, each with more bits and less error than the one before. With W weights, rate r and τ
seconds for its upload, a device needs the share (R W + e) / (r τ) for R bits per weight: a straight line in R, W / (r
τ) per bit. Minimise Σ c_n E(R_n) over the levels subject to Σ b_n ≤ 1 on every edge: a knapsack of steps. A step from
one level to the next saves c ΔE for ΔR W / (r τ) of the bandwidth. On the lower convex hull of the levels a device's
steps get worse one after the other, so taking the best steps of an edge until the next one does not fit is the exact
optimum but for that one step: what is lost is never more than what the step would have saved.

`Codes` are levels by size alone, for schemes that take the largest that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.checks import quantity
from airprune.errors import InvalidValue

if TYPE_CHECKING:
    from airprune.planning.problem import PlanProblem

Array = np.ndarray

# Sums of a million shares may lose this much to rounding, so it stays unallocated.
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Codes:
    """Compression levels of ascending size, of which a device sends with the largest that its time and share allow.

    Attributes:
      numbers: the levels, each taking no fewer bits than the one before: numbers of entries, bits per weight, …
      bits: size of a message, from (level, number of weights).
    """

    numbers: Sequence[int]
    bits: Callable[[int, int], float]

    def largest(self, weights: Array, budget_bits: Array) -> Array:
        """Returns the largest level of a message about `weights` within each budget; −1 if none.  [num_devices]"""
        pairs = zip(weights.tolist(), budget_bits.tolist(), strict=True)
        return np.array([self._largest(count, budget) for count, budget in pairs], dtype=np.int64)

    def bits_per_weight(self, code: Array, weights: Array) -> Array:
        """Returns bits per weight of each device's message, at the smallest level where `code` is −1.  [num_devices]"""
        code = np.where(code < 0, self.numbers[0], code)
        pairs = zip(code.tolist(), weights.tolist(), strict=True)
        return np.array([self.bits(number, count) / max(count, 1) for number, count in pairs])

    def _largest(self, weights: int, budget_bits: float) -> int:
        low, high = 0, len(self.numbers)
        while low < high:
            middle = (low + high) // 2
            fits = self.bits(self.numbers[middle], weights) <= budget_bits
            low, high = (middle + 1, high) if fits else (low, middle)
        return self.numbers[low - 1] if low else -1


@dataclass(frozen=True, eq=False)
class Ladder:
    """Compression levels with their errors, for a planner to choose from.  Arrays [num_levels]

    Attributes:
      bits_per_weight: ascending.
      error: share of an update's energy that a level loses, descending: ‖Δ − sent‖² / ‖Δ‖².
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
        """Returns the indices of levels on the lower convex hull, from the cheapest to the best."""
        chosen: list[int] = []
        for level in range(len(self.error)):
            if chosen and self.error[chosen[-1]] <= self.error[level]:
                continue
            while len(chosen) > 1 and self._saving(chosen[-2], chosen[-1]) <= self._saving(chosen[-1], level):
                chosen.pop()
            chosen.append(level)
        return np.array(chosen)

    def _saving(self, lower: int, upper: int) -> float:
        """Returns the error saved per bit between two levels."""
        rise = self.bits_per_weight[upper] - self.bits_per_weight[lower]
        return float((self.error[lower] - self.error[upper]) / rise)


@dataclass(frozen=True, eq=False)
class LevelChoice:
    """The compression levels of all devices.

    Attributes:
      level: index into the ladder; −1 on edges where not even the cheapest level of all devices fits.  [num_devices]
      share: bandwidth share that it needs; NaN likewise.  [num_devices]
      price: error that one more unit of bandwidth would save; 0 where all have the best level.  [num_edges]
    """

    level: Array
    share: Array
    price: Array


def choose_levels(
    problem: PlanProblem, ladder: Ladder, weights: Array, upload_s: Array, *, fair: bool = False
) -> LevelChoice:
    """Returns the level of every device.

    Args:
      problem: its `fixed_bits` come on top of every level's bits; its `bits_per_weight` is not read.
      weights: W_n, what each device sends.  [num_devices]
      upload_s: τ_n, how long its upload may take.  [num_devices]
      fair: no device takes a step before all of its edge have taken the one below, for the largest smallest bits.
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
    return LevelChoice(
        level=groups.restore(np.where(groups.repeat(fits), hull[taken], -1)),
        share=groups.restore(np.where(groups.repeat(fits), share, np.nan)),
        price=np.where(fits, price, np.nan),
    )


def _steps_taken(
    edge: Array, per_bit: Array, weight: Array, rises: Array, savings: Array, spare: Array, *, fair: bool
) -> tuple[Array, Array]:
    """Returns (steps of each device, value of the first step not taken on each edge), the best steps first."""
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
    # Each edge takes the steps before the first one that does not fit.
    stop = np.minimum.reduceat(np.where(fits, len(fits), np.arange(len(fits))), first)
    is_taken = np.arange(len(fits)) < stop[sorted_edge]
    taken = np.bincount(order[is_taken] // num_steps, minlength=num_devices)
    ends = np.append(first[1:], len(fits))
    price = np.where(stop < ends, value.ravel()[order][np.minimum(stop, len(fits) - 1)], 0.0)
    return taken, price
