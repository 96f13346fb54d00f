"""Client sampling as in FedAvg: ⌈C N_k⌉ random devices of every edge, new in every edge round."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from airprune.methods.selection.base import Array, Candidates, Selection, best_of_each_edge, number_of


class ShareSelection(Selection):
    """Selects a share of each edge's devices; which ones, its members say."""

    fully_open: ClassVar = {"share": 1.0}

    share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.1, description="C: share of each edge's devices, rounded up; 1: all"
    )

    def most(self, count: int) -> int:
        return number_of(self.share, count)


class RandomShare(ShareSelection):
    """Selects the share at random."""

    name = "random-share"
    summary = "client sampling: a random share of each edge's devices"
    source = "FedAvg, as published"

    def before(self, candidates: Candidates) -> Array:
        """One number is sampled for each device of the edges that are active; the largest are selected."""
        return best_of_each_edge(candidates, candidates.rng.random(len(candidates.device)), self.share)
