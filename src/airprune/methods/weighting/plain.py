"""The paper's weighting: every device counts as much."""

from __future__ import annotations

from typing import ClassVar

from airprune.methods.selection.base import Candidates
from airprune.methods.weighting.base import Array, Weighting, over_their_mean


class Plain(Weighting):
    """Weighs all devices equally, and by their samples where work is planned, as updates are averaged there."""

    name = "plain"
    summary = "all devices count equally; by their samples where work is planned"
    source = "the paper, Eq. (25)"
    fully_open: ClassVar = {}

    def weights(self, selected: Candidates) -> Array | float:
        return over_their_mean(selected.num_samples) if selected.plans_work else 1.0
