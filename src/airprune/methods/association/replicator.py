"""Edges grow with what they pay their devices, by replicator dynamics: evolutionary association with static rewards.

Before every global round the shares of the edges evolve from where they were; devices then fill the edges.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot
from airprune.errors import InvalidValue
from airprune.methods.association.base import Array, Association, AssociationView, Served, Values
from airprune.planning.matching import assigned
from airprune.settings.section import Count, NonNegative

SHARE = "replicator.share"

# Shares that move by less have arrived.
SETTLED = 1e-9
# An upload to a station that is out of reach.
_FOREVER_S = 1e6


def stepped(share: Array, rewards: Array, count: int, *, alone_s: Array, time_cost: float, speed: float) -> Array:
    """x ← x + δ x (u − ū), with u = γ / (N x) − c_t N x t: what a device gets less what its upload costs it.

    t is a device's upload alone on the band, on average; with N x devices it takes N x times as long. The step is made
    smaller where a share would turn negative. Σ x stays 1 because Σ x (u − ū) = 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        paid = np.where(share > 0.0, rewards / (count * share), 0.0)
    utility = paid - time_cost * count * share * alone_s
    excess = utility - share @ utility
    deepest = -excess.min()
    return share * (1.0 + (speed if speed * deepest < 1.0 else 0.5 / deepest) * excess)


def evolved(
    share: Array, rewards: Array, count: int, *, alone_s: Array, time_cost: float, speed: float, steps: int
) -> Array:
    """Step by step until the shares have settled."""
    for _ in range(steps):
        before = share
        share = stepped(share, rewards, count, alone_s=alone_s, time_cost=time_cost, speed=speed)
        if np.abs(share - before).max() < SETTLED:
            break
    return share


def contest_bids(values: Array) -> Array:
    """The equilibrium of a Tullock contest: γ = s (1 − s/v) with s = (m − 1) / Σ 1/v over the m edges with v > s.

    An edge that has no rival bids all that it would gain.
    """
    if len(values) == 1:
        return values.copy()
    bids = np.zeros(len(values))
    order = np.argsort(-values, kind="stable")
    for number in range(len(values), 1, -1):
        best = order[:number]
        if np.all(values[best] > 0.0):
            spent = (number - 1) / np.sum(1.0 / values[best])
            if values[best[-1]] > spent:
                bids[best] = spent * (1.0 - spent / values[best])
                return bids
    bids[order[0]] = values[order[0]]
    return bids


def quotas(share: Array, count: int) -> Array:
    """N x in whole devices by largest remainders; ties: the lower number.  [num_edges]"""
    exact = count * share / share.sum()
    whole = np.floor(exact + 1e-9).astype(np.int64)
    rest = np.argsort(-(exact - whole), kind="stable")[: count - whole.sum()]
    whole[rest] += 1
    return whole


def matched(places: Array, upload_s: Array) -> Array:
    """All places taken, with the least sum of upload times.  [num_devices]"""
    edge_of_place = np.repeat(np.arange(len(places)), places)
    edge: Array = edge_of_place[assigned(upload_s[:, edge_of_place])]
    return edge


def filled(places: Array, gains: Array) -> Array:
    """Devices in their order take the edge with the most places left; ties: the better channel.  [num_devices]"""
    left, edge = places.copy(), np.empty(len(gains), dtype=np.int64)
    for n, gain in enumerate(gains):
        edge[n] = np.lexsort((-gain, -left))[0]
        left[edge[n]] -= 1
    return edge


class Replicator(Association):
    """Associates by shares of the edges that evolve from round to round."""

    name = "replicator"
    summary = "evolutionary edge association: replicator dynamics of rewards less upload costs"
    source = "after Lim et al.: evolutionary association, static rewards"
    when = "global"

    rewards: tuple[NonNegative, ...] = Field(
        default=(), description="reward of every edge, shared by its devices; empty: 1 each"
    )
    contest: Literal["none", "tullock"] = Field(
        default="none",
        description="tullock: rewards are values of a device to each edge, and the edges bid against each other",
    )
    time_cost: NonNegative = Field(
        default=1.0, description="c_t: cost of a second of upload over an equal bandwidth share"
    )
    speed: Annotated[float, Field(gt=0, le=1)] = Field(default=0.1, description="delta: step size of the dynamics")
    places: Literal["best-channel", "in-order"] = Field(
        default="best-channel",
        description="assignment of devices: least sum of upload times, or in order to the edge with most places free",
    )
    steps: Count = Field(
        default=10_000,
        description="steps of the dynamics before a global round, at most; fewer once the shares have converged",
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """x_k of every edge, up to a common factor: equal in the beginning."""
        return (Slot(name=SHARE, owner=Owner.RUN, shape=lambda s: (s.num_edges,), dtype="<f8", start=1.0),)

    def decide(self, view: AssociationView, values: Values) -> tuple[Served, Values]:
        count, num_edges = view.network.num_devices, view.network.num_edges
        if len(self.rewards) not in (0, num_edges):
            rule = f"must be empty or have one entry for each of {num_edges} edges"
            raise InvalidValue("Scenario.association.replicator.rewards", rule, list(self.rewards))
        rewards = np.array(self.rewards or (1.0,) * num_edges)
        upload_s = np.minimum(view.upload_s(), _FOREVER_S)
        share = evolved(
            values[SHARE] / values[SHARE].sum(),
            contest_bids(rewards) if self.contest == "tullock" else rewards,
            count,
            alone_s=upload_s.mean(axis=0),
            time_cost=self.time_cost,
            speed=self.speed,
            steps=self.steps,
        )
        places = quotas(share, count)
        edge = filled(places, view.gains()) if self.places == "in-order" else matched(places, upload_s)
        return view.served_by(edge), values | {SHARE: share}
