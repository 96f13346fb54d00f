"""Client sampling as in FedAvg: ⌈C N_k⌉ random devices of every edge, new in every edge round."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from airprune.methods.selection.base import Candidates, Selection, best_of_each_edge, number_of
from airprune.settings.section import Section

Array = np.ndarray


class ShareOptions(Section):
    """How many are asked."""

    share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.1, description="C, of each edge's devices, rounded up; 1: everyone"
    )


def before(options: ShareOptions, candidates: Candidates) -> Array:
    """One number is drawn for each device of the edges that are active; the largest are asked."""
    return best_of_each_edge(candidates, candidates.rng.random(len(candidates.device)), options.share)


def most(options: ShareOptions, num_devices: int) -> int:
    return number_of(options.share, num_devices)


SELECTION = Selection(
    name="random-share",
    summary="a random share of each edge's devices",
    source="FedAvg, as published",
    Options=ShareOptions,
    before=before,
    most=most,
    fully_open={"share": 1.0},
)
