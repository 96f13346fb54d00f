"""The paper's server optimiser: the aggregate becomes the model of the server."""

from __future__ import annotations

from airprune.methods.aggregation.steps.base import Array, Step, Values


class Replace(Step):
    """Takes the aggregate as it is."""

    name = "replace"
    summary = "the aggregate becomes the model of the server"
    source = "the paper"

    def move(self, previous: Array, combined: Array, held: Array | None, own: Values) -> tuple[Array, Values]:
        return combined, own
