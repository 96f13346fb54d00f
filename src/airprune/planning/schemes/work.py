"""Plans the work of devices together with their bits and shares: which part each trains, for how many local steps.

A slow device trains the upper layers only, whose gradients need no backward pass through the others, and makes as many
local steps as its time is worth; a fast one trains the whole model. No weight is zeroed and no device is dropped.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.planning.deadline import auto_work_deadline_s
from airprune.planning.plan import Plan, Status
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.air_budget import AirBudget
from airprune.planning.schemes.base import Allocation, status_of_box
from airprune.planning.schemes.work_scheme import WorkScheme
from airprune.planning.tradeoff import ROUNDING_MARGIN
from airprune.planning.work import plan_work
from airprune.settings.section import MAX_COUNT, Count, Positive

Array = np.ndarray


class Work(WorkScheme):
    """Maximises the progress of a round over trained parts, local steps, compression levels and shares."""

    name = "work"
    summary = "trained part, local steps, bits per weight and bandwidth share together: most progress in the deadline"
    source = "own; parts as in TimelyFL and CoCoFL, unequal steps as in FedProx"
    chooses_codes = True
    fully_open: ClassVar = {"parts": False, "max_epochs": 1}  # as train.local_epochs

    parts: bool = Field(
        default=True,
        description="let devices train only the upper layers; needs model.prunable to name the layers below them",
    )
    max_epochs: Count = Field(default=8, description="most local passes over a device's samples in an edge round")
    half_epochs: Positive | None = Field(
        default=None,
        description="passes that bring half of the progress of endless local training; none: train.local_epochs",
    )
    coverage: Annotated[int, Field(ge=0, le=MAX_COUNT)] = Field(
        default=1, description="devices of every edge that train every layer in a round, as far as the deadline allows"
    )
    rotate: bool = Field(
        default=True,
        description="devices take turns to train every layer where too few would; false: those whom it costs the least",
    )

    @property
    def most_epochs(self) -> int:
        return self.max_epochs

    @property
    def half_progress_epochs(self) -> float | None:
        return self.half_epochs

    def parts_of(self, layers: Array) -> tuple[Array, None]:
        """Returns the model without its lowest layers, none to all but one; without `parts` the whole alone."""
        return np.array([0, *(layers[1:] if self.parts else ())], dtype=np.int64), None

    def best_deadline_s(self, problem: PlanProblem, beside_s: Array | float = 0.0) -> float:
        return auto_work_deadline_s(problem, self.draft, coverage=self.coverage, beside_s=beside_s)

    def allocate(self, problem: PlanProblem) -> Allocation:
        """Chooses one option per device, exactly on small edges; what is left of the bandwidth goes to all of them.

        A problem without work to choose is planned by `air-budget`.
        """
        return self._allocation(problem, exact=True)

    def draft(self, problem: PlanProblem) -> Plan:
        """Returns a plan near the optimum, much sooner, since few numbers of steps are tried: to search deadlines."""
        return self.planned(problem, self._allocation(problem, exact=False))

    def _allocation(self, problem: PlanProblem, *, exact: bool) -> Allocation:
        work = problem.work
        if work is None:
            return AirBudget.model_construct().allocate(problem)
        planned = plan_work(
            problem, work, coverage=self.coverage, rotate=self.rotate, exact=exact, every_step=None if exact else False
        )
        choice, ladder = planned.choice, problem.ladder
        return Allocation(
            share=use_up(problem, choice.share),
            ratio=problem.min_pruning_ratio.copy(),
            status=np.where(choice.fits, str(Status.OK), status_of_box(problem, choice.least)),
            shadow_price=choice.price,
            min_deadline_s=planned.min_deadline_s,
            bits_per_weight=None if ladder is None else ladder.bits_per_weight[planned.level],
            code=None if ladder is None else planned.level,
            blocking=planned.blocking,
            local_steps=planned.steps,
            first_trained=work.first_trained[planned.part],
            compute_s=planned.seconds,
            sent_weights=work.part_weights[planned.part],
            value=choice.total,
            value_bound=choice.bound,
        )


def use_up(problem: PlanProblem, share: Array) -> Array:
    """Returns shares that use up the bandwidth of every edge, in proportion: uploads end sooner."""
    total = problem.groups.spread(problem.groups.sum(share))
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.minimum(share * ((1.0 - ROUNDING_MARGIN) / total), 1.0)
    return np.where((total > 0.0) & (total <= 1.0 - ROUNDING_MARGIN), spread, share)
