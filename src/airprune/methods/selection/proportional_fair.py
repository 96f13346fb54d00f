"""The devices whose channels are better than they usually are: ⌈C N_k⌉ of every edge, by r_n / running mean of r_n.

A device far away is selected as often as one nearby, each in its good rounds. Where channels never change all are
equal, and chance decides.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, Values, per_device
from airprune.methods.outcome import Outcome
from airprune.methods.selection.base import Array, Candidates, best_of_each_edge
from airprune.methods.selection.random_share import ShareSelection
from airprune.settings.section import Count

MEAN, ROUNDS = "proportional-fair.mean_rate_bps", "proportional-fair.rounds"


class ProportionalFair(ShareSelection):
    """Selects the share by channels compared with what they usually are."""

    name = "proportional-fair"
    summary = "proportional fair client selection: best rates relative to their running means"
    source = "proportional fair scheduling, after Yang et al."

    window: Count = Field(
        default=100, description="rounds of the running mean; before as many have passed, the plain mean"
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        return (
            Slot(name=MEAN, owner=Owner.RUN, shape=per_device, dtype="<f8"),
            Slot(name=ROUNDS, owner=Owner.RUN, shape=per_device, dtype="<i8"),
        )

    def before(self, candidates: Candidates) -> Array:
        """A device that was never seen is held against the others: the first round selects the best channels."""
        rate, known = candidates.full_band_rate_bps, candidates.memory[ROUNDS][candidates.device] > 0
        usual = np.where(known, candidates.memory[MEAN][candidates.device], np.mean(rate))
        order = np.lexsort((candidates.rng.random(len(rate)), rate / usual))
        return best_of_each_edge(candidates, np.argsort(order), self.share)

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        """R ← R + (r − R) / min(t, window), of all candidates, selected or not."""
        seen = outcome.candidates
        mean, rounds = seen.memory[MEAN].copy(), seen.memory[ROUNDS].copy()
        rounds[seen.device] += 1
        weight = 1.0 / np.minimum(rounds[seen.device], self.window)
        mean[seen.device] += weight * (seen.full_band_rate_bps - mean[seen.device])
        return {MEAN: mean, ROUNDS: rounds}
