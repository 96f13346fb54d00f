"""Assigns one block to each device at the least energy that meets the deadline, an independent set of a graph.

After Al-Abiad, Hassan and Hossain (arXiv:2107.03520). Vertices are pairs of a device and a block; those of one device,
and those of one block, are in conflict: the lightest independent set that covers all devices is an assignment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from airprune.planning.matching import assigned, greedily_assigned
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme
from airprune.planning.schemes.blocks import Assign, allocate_blocks
from airprune.planning.schemes.energy import Fit
from airprune.settings.section import Section

Array = np.ndarray


class ConflictOptions(Section):
    """The options of the choice of vertices."""

    search: Literal["exact", "greedy"] = Field(
        default="exact", description="exact: the least sum of energies; greedy: the cheapest pairs first"
    )
    whole_models: bool = Field(
        default=False, description="drop devices that cannot send a whole model in time; else prune models"
    )
    spare_blocks: int = Field(
        default=0, ge=0, le=10_000, description="bandwidth blocks beyond an edge's number of devices"
    )

    @property
    def assign(self) -> Assign:
        return assigned if self.search == "exact" else greedily_assigned

    def narrowed(self, problem: PlanProblem) -> PlanProblem:
        """Returns the problem without pruning beyond ρ_min, if models are sent whole."""
        return replace(problem, max_pruning_ratio=problem.min_pruning_ratio) if self.whole_models else problem


def least_energy(fit: Fit) -> tuple[Array, Array]:
    """Returns (energy at the slowest clock and the least power that meet the deadline, their level).

    Per weight that is trained, times those of the largest model: the energy itself if nothing is pruned. By the energy
    itself, the worst block would win where models must be pruned to fit.
    """
    whole = fit.levels.problem.largest_model_weights
    return fit.levels.energy_j(fit.level, fit.weights) * (whole / fit.weights), fit.level


class ConflictGraph(Scheme, ConflictOptions):
    """Minimises the energy over assignments of blocks."""

    name = "conflict-graph"
    summary = "one bandwidth block per device, with the CPU frequency and power of least energy that meet the deadline"
    source = "after Al-Abiad et al., arXiv:2107.03520"
    needs_limits = True

    def allocate(self, problem: PlanProblem) -> Allocation:
        return allocate_blocks(self.narrowed(problem), spare=self.spare_blocks, offer=least_energy, assign=self.assign)

    def blocks(self, num_devices: int) -> int:
        return num_devices + self.spare_blocks
