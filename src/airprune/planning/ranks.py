"""Plans sub-models of several sizes, such as ranks of adapters, with their bits per weight and bandwidth shares.

Per edge, choose for every device n one option o = (size s, level q) and a share b:

    maximise   Σ_n c_n V(s) (1 − E_q),   V(s) = p (1 + h) / (p + h) with p = s / P
    subject to a_n (W + s) + x_n + (R_q (W + s) + e_n) / (b_n r_n) ≤ T,   Σ_n b_n ≤ 1

P are all prunable weights and W the others. V is 1 for the whole model and has diminishing returns: at the share h of
the weights a device is worth (1 + h) / 2. The smallest share of an option follows from its deadline, so this is the
multiple-choice knapsack of `multiple_choice`, with one price per edge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from airprune.planning.feasibility import blocking_devices, min_deadline_s
from airprune.planning.multiple_choice import Choice, choose_options
from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import share_for_weights

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class RankOptions:
    """All options of all devices.

    Attributes:
      size, level: of each option: prunable weights and compression level.  [num_options]
      share: the smallest bandwidth share with which it meets the deadline; infinite if it never does.
        [num_options, num_devices]
      value: what it is worth.  [num_options, num_devices]
    """

    size: Array
    level: Array
    share: Array
    value: Array


def rank_options(problem: PlanProblem, *, half_share: float) -> RankOptions:
    """Returns the options of every device.

    Args:
      problem: with `sizes`; all sizes of the plan lie within its bounds on the pruning ratio.
      half_share: h.
    """
    assert problem.sizes is not None
    bits_per_weight, error = _levels(problem)
    size, level = (grid.ravel() for grid in np.meshgrid(problem.sizes, np.arange(len(error)), indexing="ij"))
    shares = [
        share_for_weights(replace(problem, bits_per_weight=bits_per_weight[q]), problem.fixed_weights + s)
        for s, q in zip(size.tolist(), level.tolist(), strict=True)
    ]
    part = size[:, None] / problem.prunable_weights
    worth = part * (1.0 + half_share) / (part + half_share)
    return RankOptions(
        size=size,
        level=level,
        share=np.array(shares),
        value=problem.objective_weight * worth * (1.0 - error[level])[:, None],
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedRanks:
    """The chosen sub-model and level of every device, and the choice they come from.  Arrays [num_devices]

    Attributes:
      blocking: devices to drop so that an infeasible edge has a plan.
      min_deadline_s: the smallest deadline for which an edge has a plan.  [num_edges]
    """

    choice: Choice
    size: Array
    level: Array
    blocking: Array
    min_deadline_s: Array


def plan_ranks(problem: PlanProblem, *, half_share: float, exact: bool = True) -> PlannedRanks:
    """Returns the best sub-models and levels of all devices.

    Args:
      exact: whether small edges are solved to the optimum.
    """
    options = rank_options(problem, half_share=half_share)
    choice = choose_options(problem.groups, options.share, options.value, exact=exact)
    option, least = np.maximum(choice.option, 0), least_ranks(problem)
    return PlannedRanks(
        choice=choice,
        size=options.size[option],
        level=options.level[option],
        blocking=np.zeros(len(option), dtype=bool) if choice.fits.all() else blocking_devices(least),
        min_deadline_s=min_deadline_s(least),
    )


def least_ranks(problem: PlanProblem) -> PlanProblem:
    """Returns the problem of the smallest size at the cheapest level, with nothing to choose.

    No option takes less time or fewer bits, so it decides which devices block an edge, and the smallest deadline.
    """
    assert problem.sizes is not None
    weights = problem.fixed_weights + problem.sizes[0]
    return replace(
        problem,
        seconds_per_weight=0.0,
        extra_seconds=problem.seconds_per_weight * weights + problem.extra_seconds,
        bits_per_weight=0.0,
        fixed_bits=_levels(problem)[0][0] * weights + problem.fixed_bits,
        ladder=None,
        sizes=None,
    )


def _levels(problem: PlanProblem) -> tuple[Array, Array]:
    """Returns (bits per weight, error) of all compression levels; one without error if there is no choice."""
    if problem.ladder is None:
        return np.max(problem.bits_per_weight, keepdims=True), np.zeros(1)
    return problem.ladder.bits_per_weight, problem.ladder.error
