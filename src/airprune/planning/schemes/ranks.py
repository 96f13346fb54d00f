"""Plans ranks of adapters, bits per weight and bandwidth shares together, exactly on small edges.

A device with a poor channel gets fewer ranks or fewer bits, whichever loses less. Other sub-models of a few sizes, such
as the widths of HeteroFL, are planned the same way.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.planning.deadline import auto_size_deadline_s
from airprune.planning.plan import Plan, Status
from airprune.planning.problem import PlanProblem
from airprune.planning.ranks import plan_ranks
from airprune.planning.schemes.air_budget import AirBudget
from airprune.planning.schemes.base import Allocation, Scheme, status_of_box
from airprune.planning.schemes.work import use_up
from airprune.settings.section import Positive

Array = np.ndarray


class RanksScheme(Scheme):
    """Maximises the value of a round over sub-models, compression levels and shares."""

    name = "ranks"
    summary = "rank of the adapters, bits per weight and bandwidth share together: most value in the deadline"
    source = "own"
    chooses_codes = True
    chooses_sizes = True
    fully_open: ClassVar = {}

    half_share: Positive = Field(
        default=0.25, description="share of the ranks at which a further rank has lost most of its value: h of V"
    )

    def best_deadline_s(self, problem: PlanProblem, beside_s: Array | float = 0.0) -> float | None:
        """Returns the deadline with the most value per second."""
        if problem.sizes is None:
            return None
        return auto_size_deadline_s(problem, self.draft, beside_s=beside_s)

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Chooses one option per device; what is left of the bandwidth goes to all of them.

        A problem without sizes to choose from is planned by `air-budget`.
        """
        return self._allocation(problem, exact=True)

    def draft(self, problem: PlanProblem) -> Plan:
        """Returns a plan near the optimum, sooner: to search deadlines."""
        return self.planned(problem, self._allocation(problem, exact=False))

    def _allocation(self, problem: PlanProblem, *, exact: bool) -> Allocation:
        if problem.sizes is None:
            return AirBudget.model_construct().allocate(problem)
        found = plan_ranks(problem, half_share=self.half_share, exact=exact)
        choice, ladder = found.choice, problem.ladder
        return Allocation(
            share=use_up(problem, choice.share),
            ratio=1.0 - found.size / problem.prunable_weights,
            status=np.where(choice.fits, str(Status.OK), status_of_box(problem, choice.least)),
            shadow_price=choice.price,
            min_deadline_s=found.min_deadline_s,
            bits_per_weight=None if ladder is None else ladder.bits_per_weight[found.level],
            code=None if ladder is None else found.level,
            blocking=found.blocking,
            value=choice.total,
            value_bound=choice.bound,
        )
