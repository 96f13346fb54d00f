"""Majority vote (sign-SGD): every child says up or down for each weight, the parent moves one step with the majority.

    next = previous + η sign(Σ c_n sign(w_n − previous))

A tie moves nothing, and what a child did not send, or did not move, is no vote. With one local step w_n − previous is
−η g_n, so this is w − η · majority of sign(g_n); after more steps the vote is on updates.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from airprune.methods.aggregation.base import Aggregation
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.settings.section import Positive, Section

Array = np.ndarray


class VoteOptions(Section):
    """How far a vote moves."""

    rate: Positive | Literal["train"] = Field(
        default="train", description="eta of a parent's step; train: the learning rate of the round"
    )


def at_rate(options: VoteOptions, learning_rate: float) -> VoteOptions:
    return VoteOptions(rate=learning_rate) if options.rate == "train" else options


def read(options: VoteOptions, state: Array, previous: Array) -> Array:
    """Whole numbers, whose sums are exact: a tie is a tie."""
    return np.sign(state.astype(np.float64) - previous)


def finish(options: VoteOptions, total: MaskedSum, previous: Array) -> Array:
    assert options.rate != "train"
    return (previous + options.rate * np.sign(total.total)).astype(previous.dtype)


AGGREGATION = Aggregation(
    name="vote",
    summary="one step up or down for each weight, as the majority of the children says",
    source="sign-SGD with majority vote (Bernstein et al. 2018)",
    Options=VoteOptions,
    finish=finish,
    read=read,
    at_rate=at_rate,
)
