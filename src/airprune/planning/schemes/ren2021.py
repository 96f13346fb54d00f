"""Chooses blocks, clock and power by a weighted sum of energy, time and pruning, blocks by the Hungarian method.

After Ren, Ni, Nie and Tian (arXiv:2104.09177), whose learning cost and gains of sub-carriers are not known to us.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.planning.matching import assigned
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, Scheme
from airprune.planning.schemes.blocks import allocate_blocks
from airprune.planning.schemes.energy import Fit
from airprune.settings.section import NonNegative

Array = np.ndarray


class Ren2021(Scheme):
    """Minimises the weighted sum of energy, time and pruning over assignments of blocks."""

    name = "ren2021"
    summary = "one bandwidth block per device, CPU frequency and power: least weighted sum of energy, time and pruning"
    source = "after Ren et al., arXiv:2104.09177"
    needs_limits = True

    energy_weight: NonNegative = Field(default=1.0, description="weight lambda_e of a joule")
    time_weight: NonNegative = Field(default=1.0, description="weight lambda_t of a second of each device")
    learning_weight: NonNegative = Field(default=1.0, description="weight lambda_l of a pruning ratio")
    spare_blocks: int = Field(
        default=0, ge=0, le=10_000, description="bandwidth blocks beyond an edge's number of devices"
    )

    def allocate(self, problem: PlanProblem) -> Allocation:
        return allocate_blocks(problem, spare=self.spare_blocks, offer=self.offer, assign=assigned)

    def offer(self, fit: Fit) -> tuple[Array, Array]:
        """Returns (λ_e E + λ_t T + λ_l ρ with the smallest ρ that the block allows, the best level of clock and power).

        A second is worth λ_t / λ_e joules, so that f = (λ_t / (2 kappa λ_e))^(1/3) and (1 + γp) ln(1 + γp) − γp =
        γ λ_t / λ_e, unless the deadline needs more or the energy budget allows less.
        """
        level = fit.with_time_worth(self.time_weight / self.energy_weight if self.energy_weight else np.inf)
        cost = self.energy_weight * fit.levels.energy_j(level, fit.weights)
        cost = cost + self.time_weight * fit.levels.time_s(level, fit.weights)
        return cost + self.learning_weight * fit.ratio, level

    def blocks(self, num_devices: int) -> int:
        return num_devices + self.spare_blocks
