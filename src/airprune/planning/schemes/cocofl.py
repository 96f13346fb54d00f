"""Trains a block of neighbouring layers, chosen at random among the largest that fit a device's time.

CoCoFL (Pfeiffer et al. 2023): the layers outside the block are frozen and computed at 8 bits, below it forward only,
above it forward and backward, since gradients must pass. All devices make the same local steps.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field

from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.work_scheme import EqualShareWork, equal_share_uplink_s, kth_smallest_s, within
from airprune.planning.work_model import WorkModel
from airprune.settings.section import Ratio

Array = np.ndarray


class CoCoFL(EqualShareWork):
    """Draws the trained block among those that fit and lie in no larger one that does."""

    name = "cocofl"
    summary = "equal shares; a random block of layers among the largest that fit the time, the others frozen at 8 bits"
    source = "CoCoFL: Pfeiffer, Rapp, Khalili, Henkel"
    draws = True

    strong: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.33,
        description='share of the devices that train the whole model: sets the deadline if plan.deadline_s = "auto"',
    )
    frozen_cost: Ratio = Field(
        default=0.74,
        description="time of the forward pass of a frozen layer at 8 bits over that in full precision, on clocks that "
        "count FLOPs; the default is three times 0.246, the time of ResNet-18 with all but its last layer frozen over "
        "that of training it, as the authors measured on ARM",
    )

    @property
    def frozen_forward(self) -> float:
        return self.frozen_cost

    def parts_of(self, layers: Array) -> tuple[Array, Array]:
        """Returns all blocks of neighbouring layers, the largest first."""
        count = len(layers)
        starts = np.array([0, *layers[1:]], dtype=np.int64)
        ends = np.array([*(layers[1:] - 1), layers[-1]], dtype=np.int64)
        blocks = [(start, start + size - 1) for size in range(count, 0, -1) for start in range(count - size + 1)]
        return starts[[start for start, _ in blocks]], ends[[end for _, end in blocks]]

    def fewest_steps(self, work: WorkModel) -> Array:
        return work.most_steps

    def choose(self, problem: PlanProblem, work: WorkModel, uplink_s: Array) -> tuple[Array, Array]:
        """Draws one of the blocks that fit, such that no larger one around it does; whatever where none fits."""
        assert work.last_trained is not None
        fits = within(problem, self.least_s(work, uplink_s))
        can_grow = np.zeros_like(fits)
        for part, larger in _neighbours(work.first_trained, work.last_trained):
            can_grow[part] |= fits[larger]  # a block takes no less than one inside it
        largest = fits & ~can_grow
        rank = np.cumsum(largest, axis=0)
        wanted = np.floor(work.draw * rank[-1]) + 1.0
        return np.argmax(largest & (rank == wanted), axis=0), np.broadcast_to(work.most_steps, (problem.num_devices,))

    def best_deadline_s(self, problem: PlanProblem, beside_s: Array | float = 0.0) -> float:
        """Returns the time in which `strong` of the devices train the whole model, and all some block of it."""
        work = problem.work
        reachable = problem.full_band_rate_bps > 0.0
        if work is None or not reachable.any():
            return float(np.max(problem.deadline_s))
        least_s = self.least_s(work, equal_share_uplink_s(problem, work))[:, reachable]
        return max(kth_smallest_s(least_s[0], self.strong), kth_smallest_s(least_s.min(axis=0), 1.0))


def _neighbours(first: Array, last: Array) -> list[tuple[int, int]]:
    """Returns pairs (block, block with one more layer below or above it), as numbers of parts."""
    number = {block: place for place, block in enumerate(zip(first.tolist(), last.tolist(), strict=True))}
    starts, ends = np.unique(first).tolist(), np.unique(last).tolist()
    below = dict(zip(starts[1:], starts[:-1], strict=True))
    above = dict(pairwise(ends))
    larger = [(place, (below.get(start), end)) for (start, end), place in number.items()]
    larger += [(place, (start, above.get(end))) for (start, end), place in number.items()]
    return [(place, number[block]) for place, block in larger if block in number]
