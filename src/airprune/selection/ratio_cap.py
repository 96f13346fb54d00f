"""Devices that would be pruned too much are dropped from the round, one after the other, and the rest share their band.

On an edge without a plan, the device with the worst channel goes first.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.planning import Plan
from airprune.selection.base import Candidates, Selection, everyone
from airprune.settings.section import Count, Ratio, Section

Array = np.ndarray


class CapOptions(Section):
    """When a device is dropped from a round."""

    max_ratio: Ratio = Field(
        default=0.8, description="largest pruning ratio that is worth a place; 1: nobody is dropped"
    )
    min_devices: Count = Field(default=1, description="of each edge, that stay whatever their ratios")


def after(options: CapOptions, candidates: Candidates, plan: Plan) -> Array:
    """Of every edge the one to go: argmax ρ above the cap (ties: worse channel, then higher number), or argmin r."""
    stays = np.ones(len(candidates.device), dtype=bool)
    if options.max_ratio >= 1.0:
        return stays
    failed = plan.problem.groups.spread(plan.failed)
    for edge in np.unique(candidates.edge):
        here = np.flatnonzero(candidates.edge == edge)
        if len(here) <= options.min_devices:
            continue
        rate = candidates.full_band_rate_bps[here]
        ratio = np.where(failed[here], np.inf, plan.pruning_ratio[here])
        worst = here[np.lexsort((candidates.device[here], -rate, ratio))[-1]]
        if failed[worst] or plan.pruning_ratio[worst] > options.max_ratio:
            stays[worst] = False
    return stays


SELECTION = Selection(
    name="ratio-cap",
    summary="everyone, then without those whose models would be pruned too much",
    source="after Liu et al. 2022",
    Options=CapOptions,
    before=everyone,
    after=after,
    fully_open={"max_ratio": 1.0},
)
