"""The paper's step: the combined model becomes the parent's."""

from __future__ import annotations

from airprune.methods.aggregation.steps.base import Array, Step, Values


class Replace(Step):
    """The combined model as it is."""

    name = "replace"
    summary = "the combined model becomes the parent's"
    source = "the paper"

    def move(self, previous: Array, combined: Array, held: Array | None, own: Values) -> tuple[Array, Values]:
        return combined, own
