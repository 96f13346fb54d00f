"""The paper's selection: every device takes part in every round."""

from __future__ import annotations

import numpy as np

from airprune.methods.selection.base import Candidates, Selection, everyone

Array = np.ndarray


class Everyone(Selection):
    """Selects all devices."""

    name = "everyone"
    summary = "all devices, in every round"
    source = "the paper"

    def before(self, candidates: Candidates) -> Array:
        return everyone(candidates)
