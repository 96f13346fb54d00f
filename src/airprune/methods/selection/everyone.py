"""The paper's selection: every device takes part in every round."""

from __future__ import annotations

from airprune.methods.selection.base import Array, Candidates, Selection, everyone


class Everyone(Selection):
    """Selects all devices."""

    name = "everyone"
    summary = "all devices in every round"
    source = "the paper"

    def before(self, candidates: Candidates) -> Array:
        return everyone(candidates)
