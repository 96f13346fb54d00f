"""HybridFL: edges select more devices where fewer used to respond, and the round ends when enough of all have.

    θ_r = Σ selected · submitted / Σ selected²   an edge's slack factor: least squares through 0 over past rounds, first
    1 C_r = C / θ_r, at least C, at most 1         the share of its devices that the edge samples

No device is probed: an edge learns from the uploads. The round is over with the ⌈C N⌉-th upload, or at the deadline.
"""

from __future__ import annotations

import numpy as np

from airprune.components.component import ModelShape, Owner, Slot, Values
from airprune.methods.outcome import Outcome
from airprune.methods.selection.base import Array, Candidates, best_of_each_edge, number_of
from airprune.methods.selection.random_share import ShareSelection

PRODUCT, SQUARE = "slack.asked_submitted", "slack.asked_sq"


def sampled_shares(share: float, product: Array, square: Array) -> Array:
    """C_r of every edge.  [num_edges]"""
    slack = np.divide(product, square, out=np.ones(len(square)), where=square > 0.0)
    return np.clip(np.divide(share, slack, out=np.ones(len(square)), where=slack > 0.0), share, 1.0)


class Slack(ShareSelection):
    """Selects at random, more devices where fewer used to respond."""

    name = "slack"
    summary = "client sampling by past response rates; the round ends when a quota has uploaded"
    source = "after HybridFL (Wu et al.)"

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The two sums of θ_r, of every edge."""
        return (
            Slot(name=PRODUCT, owner=Owner.EDGE, shape=lambda _: (), dtype="<f8"),
            Slot(name=SQUARE, owner=Owner.EDGE, shape=lambda _: (), dtype="<f8"),
        )

    def before(self, candidates: Candidates) -> Array:
        shares = sampled_shares(self.share, candidates.memory[PRODUCT], candidates.memory[SQUARE])
        return best_of_each_edge(candidates, candidates.rng.random(len(candidates.device)), shares[candidates.edge])

    def barrier(self, arrives_s: Array, num_devices: int) -> float:
        """The ⌈C N⌉-th smallest latency; infinite if fewer arrive."""
        quota = number_of(self.share, num_devices)
        return float(np.sort(arrives_s)[quota - 1]) if quota <= len(arrives_s) else np.inf

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        memory = outcome.candidates.memory
        num_edges = len(memory[SQUARE])
        selected = np.bincount(outcome.edge, minlength=num_edges)
        submitted = np.bincount(outcome.edge, outcome.arrived, minlength=num_edges)
        return {PRODUCT: memory[PRODUCT] + selected * submitted, SQUARE: memory[SQUARE] + selected**2.0}

    def most(self, count: int) -> int:
        """Returns all: where hardly any device responded, C_r is 1."""
        return count
