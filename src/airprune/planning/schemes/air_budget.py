"""Chooses shares and bits per weight together, so that the compression error of the updates is least.

Pruning is the last resort: where not even the cheapest level of all devices fits, all devices of the edge take it and
`optimal` decides what is pruned; within an energy budget `energy` does, which may also lower the CPU frequency.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from pydantic import Field

from airprune.planning.compression_levels import Ladder, choose_levels
from airprune.planning.feasibility import min_deadline_s
from airprune.planning.plan import Status
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme
from airprune.planning.schemes.energy import Energy
from airprune.planning.schemes.optimal import Optimal
from airprune.planning.tradeoff import ROUNDING_MARGIN

Array = np.ndarray


class AirBudget(Scheme):
    """Minimises the compression error of the updates over shares and levels."""

    name = "air-budget"
    summary = "jointly optimal bandwidth shares and bits per weight: least compression error of the updates"
    source = "own"
    chooses_codes = True

    fair: bool = Field(
        default=False, description="maximise the smallest bits per weight of an edge, instead of the least total error"
    )

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Takes the levels of `choose_levels`; the remaining bandwidth goes to all devices in proportion."""
        ladder = problem.ladder or Ladder(float(np.max(problem.bits_per_weight)), 0.0)
        cheapest = float(ladder.bits_per_weight[0])
        if np.any(problem.bits_per_weight != cheapest):  # all have it where pruning must help
            problem = dataclasses.replace(problem, bits_per_weight=cheapest)
        weights = problem.largest_model_weights
        upload_s = _upload_s(problem, weights)
        found = choose_levels(problem, ladder, weights, upload_s, fair=self.fair)
        groups = problem.groups
        total = groups.spread(groups.sum(found.share))
        with np.errstate(divide="ignore", invalid="ignore"):  # no device needs bandwidth
            share = np.minimum(found.share * ((1.0 - ROUNDING_MARGIN) / total), 1.0)
        share = np.where((total > 0.0) & (total <= 1.0 - ROUNDING_MARGIN), share, found.share)
        plain = Allocation(
            share=share,
            ratio=problem.min_pruning_ratio.copy(),
            status=np.where(np.isnan(found.price), "", Status.OK.value).astype("<U24"),
            shadow_price=found.price,
            min_deadline_s=min_deadline_s(problem) if problem.limits is None else _fallback(problem).min_deadline_s,
            bits_per_weight=ladder.bits_per_weight[found.level],
            code=found.level,
        )
        if np.isnan(found.price).any():
            plain = _with_pruning(problem, ladder, plain)
        return plain if problem.ladder is not None else dataclasses.replace(plain, code=None)


def _upload_s(problem: PlanProblem, weights: Array) -> Array:
    """Returns τ, the time that deadline and energy budget leave for the upload.  [num_devices]"""
    compute_s = problem.seconds_per_weight * weights + problem.extra_seconds
    left_s = problem.deadline_s - compute_s
    limits = problem.limits
    if limits is None:
        return left_s
    compute_j = limits.effective_capacitance * limits.cpu_hz_max**3 * compute_s
    return np.minimum(left_s, (limits.energy_j - compute_j) / (limits.power_w_max / limits.amplifier_efficiency))


def _with_pruning(problem: PlanProblem, ladder: Ladder, plain: Allocation) -> Allocation:
    """Replaces edges without a plan by `optimal`, or `energy` within a budget, at the cheapest level."""
    limits = problem.limits
    lacking = plain.status == ""
    short = problem.groups.spread(lacking)
    pruned = _fallback(problem.subset(short))
    assert plain.code is not None
    code = np.where(short, 0, plain.code)
    return dataclasses.replace(
        plain,
        share=_put(plain.share, short, pruned.share),
        ratio=_put(plain.ratio, short, pruned.ratio),
        status=_put(plain.status, lacking, pruned.status),
        shadow_price=_put(plain.shadow_price, lacking, pruned.shadow_price),
        bits_per_weight=ladder.bits_per_weight[code],
        code=code,
        cpu_hz=None if limits is None else _put(limits.cpu_hz_max, short, pruned.cpu_hz),
        power_w=None if limits is None else _put(limits.power_w_max, short, pruned.power_w),
        blocking=None if limits is None else _put(np.zeros(len(short), dtype=bool), short, pruned.blocking),
    )


def _fallback(problem: PlanProblem) -> Allocation:
    """Returns the allocation with pruning, which also decides the smallest deadline."""
    return (Optimal() if problem.limits is None else Energy()).allocate(problem)


def _put(values: Any, where: Array, others: Any) -> Array:
    """Returns a copy with other values in some places."""
    changed = np.array(values)
    changed[where] = others
    return changed
