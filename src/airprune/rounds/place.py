"""Where a run stands at the beginning of an edge round."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from airprune.rounds.planning_context import PlanningContext

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """The indices and settings of one edge round, made once and used by all of its steps.

    Attributes:
      global_round: q, from 0.
      counters: rounds that each level of the tree has run in the current round of the level above.
      step: edge rounds since the start of the global round.
      round_index: edge rounds since the start of the run.
      edges: those that run this round, ascending.
      learning_rate: η.
      local_steps: τ_n of every device; None where it is as in every round.  [num_devices]
      terms: what the round is planned and timed with.
    """

    global_round: int
    counters: tuple[int, ...]
    step: int
    round_index: int
    edges: Array
    learning_rate: float
    local_steps: Array | None
    terms: PlanningContext

    @property
    def starts_global_round(self) -> bool:
        return not any(self.counters)


def learning_rate_at(
    global_round: int, *, base: float, schedule: str, global_rounds: int, step_every: int, step_factor: float
) -> float:
    """η of one global round (counted from 0): constant, times a factor every few rounds, or half a cosine to zero."""
    if schedule == "step":
        return base * step_factor ** (global_round // step_every)
    if schedule == "cosine":
        return base * 0.5 * (1.0 + math.cos(math.pi * global_round / global_rounds))
    return base
