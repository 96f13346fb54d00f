"""The devices with the best channels: ⌈C N_k⌉ of every edge, by their full-band rates of the round."""

from __future__ import annotations

from airprune.methods.selection.base import Array, Candidates, best_of_each_edge
from airprune.methods.selection.random_share import ShareSelection


class BestChannel(ShareSelection):
    """Selects the share by channels."""

    name = "best-channel"
    summary = "client selection by channel: the share of each edge's devices with the best rates"

    def before(self, candidates: Candidates) -> Array:
        return best_of_each_edge(candidates, candidates.full_band_rate_bps, self.share)
