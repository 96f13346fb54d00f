"""Devices that would be pruned too much are dropped, one after the other, and the rest share their bandwidth.

On an edge without a plan, the device with the worst channel goes first. Or, where edges are small, the best set of all:
argmin over S of Σ_S ρ + ν (N − |S|), an excluded device counting as one that is pruned whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from airprune.errors import InvalidValue
from airprune.methods.selection.base import Array, Candidates, Selection, everyone
from airprune.planning import Plan, PlanProblem
from airprune.planning.schemes import plan as plan_by
from airprune.settings.section import Count, NonNegative, Ratio

# All 2^N sets of an edge's devices are planned: beyond it, that takes too long.
MOST_DEVICES = 12


def set_costs(problem: PlanProblem, plan: Plan, *, least: int, left_out_cost: float) -> tuple[Array, Array]:
    """(all sets of at least so many devices of one edge, J = Σ ρ + ν (N − |S|)), infinite where a set has no plan.

    [num_sets, num_devices] bool and [num_sets]; every set is an edge of one large problem for the scheme of `plan`.
    """
    count = problem.num_devices
    sets = (np.arange(1, 2**count)[:, None] >> np.arange(count)) & 1 == 1
    sets = sets[sets.sum(axis=1) >= least]
    number, device = np.nonzero(sets)
    copies = plan_by(replace(problem.subset(device), edge=number), plan.scheme, plan.options)
    pruned = copies.problem.groups.sum(np.where(np.isfinite(copies.pruning_ratio), copies.pruning_ratio, 1.0))
    return sets, np.where(copies.failed, np.inf, pruned + left_out_cost * (count - sets.sum(axis=1)))


class RatioCap(Selection):
    """Selects all devices and drops those that would be pruned too much."""

    name = "ratio-cap"
    summary = "all devices but those whose pruning ratios would exceed a cap"
    source = "after Liu et al. 2022"
    fully_open: ClassVar = {"max_ratio": 1.0}

    max_ratio: Ratio = Field(
        default=0.8, description="largest pruning ratio of a selected device; 1: no device is dropped"
    )
    min_devices: Count = Field(default=1, description="devices of each edge that stay whatever their pruning ratios")
    search: Literal["one-by-one", "exact"] = Field(
        default="one-by-one",
        description=f"exact: the best subset of an edge's devices, of which there are at most {MOST_DEVICES}",
    )
    left_out_cost: NonNegative = Field(
        default=1.0, description="nu of the exact search: cost of an excluded device, in pruning ratios"
    )

    def before(self, candidates: Candidates) -> Array:
        return everyone(candidates)

    def after(self, candidates: Candidates, plan: Plan) -> Array:
        if self.max_ratio >= 1.0:
            return np.ones(len(candidates.device), dtype=bool)
        return self._best_sets(plan) if self.search == "exact" else self._one_less(candidates, plan)

    def _best_sets(self, plan: Plan) -> Array:
        """The cheapest set of every edge (ties: the larger set, then the first one); all, if none has a plan."""
        problem, stays = plan.problem, np.ones(plan.problem.num_devices, dtype=bool)
        for edge in problem.edge_ids:
            here = np.flatnonzero(problem.edge == edge)
            if len(here) > MOST_DEVICES:
                rule = f'must be "one-by-one" with more than {MOST_DEVICES} devices on an edge'
                raise InvalidValue("Scenario.selection.ratio-cap.search", rule, f'"exact" with {len(here)}')
            least = min(self.min_devices, len(here))
            sets, cost = set_costs(problem.subset(here), plan, least=least, left_out_cost=self.left_out_cost)
            best = int(np.lexsort((-sets.sum(axis=1), np.round(cost, 12)))[0])
            if np.isfinite(cost[best]):
                stays[here] = sets[best]
        return stays

    def _one_less(self, candidates: Candidates, plan: Plan) -> Array:
        """Drops one of every edge: argmax ρ above the cap (ties: worse channel, then higher number), or argmin r."""
        stays = np.ones(len(candidates.device), dtype=bool)
        failed = plan.problem.groups.spread(plan.failed)
        for edge in np.unique(candidates.edge):
            here = np.flatnonzero(candidates.edge == edge)
            if len(here) <= self.min_devices:
                continue
            rate = candidates.full_band_rate_bps[here]
            ratio = np.where(failed[here], np.inf, plan.pruning_ratio[here])
            worst = here[np.lexsort((candidates.device[here], -rate, ratio))[-1]]
            if failed[worst] or plan.pruning_ratio[worst] > self.max_ratio:
                stays[worst] = False
        return stays
