"""The devices with the best channels: ⌈C N_k⌉ of every edge, by their full-band rates of the round."""

from __future__ import annotations

import numpy as np

from airprune.methods.selection.base import Candidates, Selection, best_of_each_edge
from airprune.methods.selection.random_share import ShareOptions, most

Array = np.ndarray


def before(options: ShareOptions, candidates: Candidates) -> Array:
    return best_of_each_edge(candidates, candidates.full_band_rate_bps, options.share)


SELECTION = Selection(
    name="best-channel",
    summary="the share of each edge's devices with the best channels",
    Options=ShareOptions,
    before=before,
    most=most,
    fully_open={"share": 1.0},
)
