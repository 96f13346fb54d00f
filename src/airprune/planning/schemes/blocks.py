"""Assigns one block of the bandwidth to each device, for schemes that match devices with blocks.

An edge of N devices splits its bandwidth into S = N + spare blocks. A device in a block has an S-th of it at the
block's own gain. All pairs of a device and a block are one `PlanProblem`, so that every formula is the usual one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from airprune.planning.matching import smallest_worst
from airprune.planning.plan import Status
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation
from airprune.planning.schemes.energy import Fit
from airprune.planning.tradeoff import share_for_weights

Array = np.ndarray
Assign = Callable[[Array], Array]
"""Maps costs [devices, blocks], infinite where impossible, to the block of each device, −1 for none."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of every device with every block of its edge.  Arrays [num_pairs], device by device

    Attributes:
      share: 1/S.
      fit: the largest model that the block carries within deadline and energy budget.
    """

    device: Array
    block: Array
    share: Array
    fit: Fit

    @classmethod
    def of(cls, problem: PlanProblem, spare: int) -> Pairs:
        per_device = problem.groups.spread(problem.groups.counts + spare)
        device = np.repeat(np.arange(problem.num_devices), per_device)
        block = np.arange(len(device)) - np.repeat(np.cumsum(per_device) - per_device, per_device)
        share = 1.0 / per_device[device]
        return cls(device, block, share, Fit.of(problem.subset(device).on_blocks(block), share))


def allocate_blocks(
    problem: PlanProblem, *, spare: int, offer: Callable[[Fit], tuple[Array, Array]], assign: Assign
) -> Allocation:
    """Matches every edge's devices with its blocks by their costs; a device without a block makes its edge infeasible.

    Args:
      offer: (cost of every pair, its level of clock and power); impossible pairs are excluded later.
    """
    pairs = Pairs.of(problem, spare)
    cost, level = offered(pairs.fit, offer)
    chosen, min_deadline_s = np.full(problem.num_devices, -1), np.empty(problem.groups.num_edges)
    first = np.searchsorted(pairs.device, np.arange(problem.num_devices))
    for k, edge in enumerate(problem.edge_ids):
        here = np.flatnonzero(problem.edge == edge)
        table = first[here][:, None] + np.arange(len(here) + spare)
        block = assign(cost[table])
        chosen[here] = np.where(block < 0, -1, table[np.arange(len(here)), block])
        min_deadline_s[k] = smallest_worst(pairs.fit.needed_s[table])
    uncovered = chosen < 0
    return Allocation(
        share=pairs.share[chosen],
        ratio=pairs.fit.ratio[chosen],
        status=_status(problem, pairs, uncovered),
        shadow_price=np.nan,
        min_deadline_s=min_deadline_s,
        cpu_hz=pairs.fit.levels.cpu_hz(level)[chosen],
        power_w=pairs.fit.levels.power_w(level)[chosen],
        block=np.where(uncovered, -1, pairs.block[chosen]),
        blocking=uncovered,
    )


def offered(fit: Fit, offer: Callable[[Fit], tuple[Array, Array]]) -> tuple[Array, Array]:
    """Returns (costs, infinite where a pair is impossible; levels)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # pairs without a rate
        cost, level = offer(fit)
    return np.where(fit.possible, cost, np.inf), level


def _status(problem: PlanProblem, pairs: Pairs, uncovered: Array) -> Array:
    """Returns what devices without a block lack: compute time, energy, or bandwidth."""
    compute_s = problem.seconds_per_weight * problem.smallest_model_weights
    slow = problem.groups.any(uncovered & (compute_s >= problem.time_for_weights_s))
    dear = share_for_weights(pairs.fit.levels.problem, pairs.fit.levels.problem.smallest_model_weights) <= pairs.share
    dear = problem.groups.any(uncovered & (np.bincount(pairs.device, dear & ~pairs.fit.possible) > 0))
    short = np.select([slow, dear], [Status.INFEASIBLE_COMPUTE, Status.INFEASIBLE_ENERGY], Status.INFEASIBLE_BANDWIDTH)
    return np.where(problem.groups.any(uncovered), short, Status.OK).astype(str)
