"""The air budget: shares and bits per weight chosen together, so that the least of the updates is lost.

Pruning is the last resort: where not even the cheapest code of all devices fits, everybody on the edge has that code
and `optimal` decides what else must go.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.planning.feasibility import min_deadline_s
from airprune.planning.ladder import Ladder, climb
from airprune.planning.limits import energy_j
from airprune.planning.plan import Status
from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import ROUNDING_MARGIN
from airprune.schemes import optimal
from airprune.schemes.base import Allocation, Scheme
from airprune.settings.section import Section

Array = np.ndarray


class AirBudgetOptions(Section):
    """Options of `air-budget`."""

    owner: ClassVar[str] = "Scenario.plan.air-budget"

    fair: bool = Field(
        default=False, description="the most bits for whoever has the fewest, instead of the least error in all"
    )


def allocate(problem: PlanProblem, options: AirBudgetOptions) -> Allocation:
    """Everybody's rung by `planning.ladder.climb`; what is left of the band goes to all in proportion."""
    ladder = problem.ladder or Ladder(float(np.max(problem.bits_per_weight)), 0.0)
    weights = problem.largest_model_weights
    upload_s, spent = _upload_s(problem, weights)
    found = climb(problem, ladder, weights, upload_s, fair=options.fair)
    groups = problem.groups
    total = groups.spread(groups.sum(found.share))
    share = np.minimum(found.share * ((1.0 - ROUNDING_MARGIN) / total), 1.0)
    share = np.where(total <= 1.0 - ROUNDING_MARGIN, share, found.share)
    plain = Allocation(
        share=share,
        ratio=problem.min_pruning_ratio.copy(),
        status=np.where(np.isnan(found.price), "", Status.OK.value).astype("<U24"),
        shadow_price=found.price,
        min_deadline_s=min_deadline_s(problem),
        bits_per_weight=ladder.bits_per_weight[found.rung],
        code=found.rung,
    )
    if not np.isnan(found.price).any():
        return plain
    return _with_pruning(problem, ladder, plain, spent)


def _upload_s(problem: PlanProblem, weights: Array) -> tuple[Array, Array]:
    """(τ, who has no energy left): what deadline and energy budget leave for the upload.  Each [num_devices]"""
    compute_s = problem.seconds_per_weight * weights + problem.extra_seconds
    left_s = problem.deadline_s - compute_s
    limits = problem.limits
    if limits is None or not np.isfinite(limits.energy_j).any():
        return left_s, np.zeros(problem.num_devices, dtype=bool)
    compute_j = energy_j(problem, compute_s=compute_s, uplink_s=0.0, cpu_hz=limits.cpu_hz_max, power_w=0.0)  # type: ignore[arg-type]
    budget_s = (limits.energy_j - compute_j) / limits.power_w_max
    return np.minimum(left_s, budget_s), budget_s <= 0.0


def _with_pruning(problem: PlanProblem, ladder: Ladder, plain: Allocation, spent: Array) -> Allocation:
    """The same with `optimal` at the cheapest code on the edges that have no plan."""
    groups = problem.groups
    short = groups.spread(plain.status == "")
    pruned = optimal.allocate(problem.subset(short))
    share, ratio, code, status = plain.share.copy(), plain.ratio.copy(), plain.code.copy(), plain.status.copy()  # type: ignore[union-attr]
    price = np.array(plain.shadow_price)
    share[short], ratio[short], code[short] = pruned.share, pruned.ratio, 0
    lacking = plain.status == ""
    status[lacking], price[lacking] = pruned.status, pruned.shadow_price
    no_energy = groups.any(spent) & lacking
    status[no_energy] = Status.INFEASIBLE_ENERGY
    return dataclasses.replace(
        plain,
        share=share,
        ratio=ratio,
        code=code,
        status=status,
        shadow_price=price,
        bits_per_weight=ladder.bits_per_weight[code],
        blocking=spent if no_energy.any() else None,
    )


SCHEME = Scheme(
    name="air-budget",
    summary="shares and bits per weight chosen together so that the least of the updates is lost",
    Options=AirBudgetOptions,
    allocate=allocate,
    chooses_codes=True,
    source="own",
)
