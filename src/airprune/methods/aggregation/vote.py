"""Majority vote (sign-SGD): every child votes up or down for each weight, the parent takes one step with the majority.

    next = previous + η sign(Σ c_n sign(w_n − previous))

A tie moves nothing, and what a child did not send, or did not move, is no vote. With one local step w_n − previous is
−η g_n, so this is w − η · majority of sign(g_n); after more steps the vote is on updates.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field

from airprune.methods.aggregation.base import Aggregation, Array
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.settings.section import Positive


class Vote(Aggregation):
    """One step with the majority."""

    name = "vote"
    summary = "sign-SGD's majority vote: one step of fixed size per weight"
    source = "sign-SGD with majority vote (Bernstein et al. 2018)"

    rate: Positive | Literal["train"] = Field(
        default="train", description="eta: step size; train: the learning rate of the round"
    )

    def at_rate(self, learning_rate: float) -> Self:
        return type(self)(**self.model_dump() | {"rate": learning_rate}) if self.rate == "train" else self

    def read(self, state: Array, previous: Array) -> Array:
        """Returns the votes as whole numbers, whose sums are exact: a tie is a tie."""
        return np.sign(state.astype(np.float64) - previous)

    def finish(self, total: MaskedSum, previous: Array) -> Array:
        return self.moved(previous, total.total)

    def moved(self, previous: Array, votes: Array) -> Array:
        """Returns `previous` after one step in the direction of the votes.  [num_state]"""
        assert self.rate != "train"
        return (previous + self.rate * np.sign(votes)).astype(previous.dtype)
