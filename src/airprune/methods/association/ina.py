"""The soonest end of the slowest edge: whole models, shares with which all its devices arrive together, backhaul.

Makespan on unrelated machines: exact for few devices, else descents from two starts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from airprune.methods.association.base import Array, Association, AssociationView, Served, Values
from airprune.methods.association.descent import Costs, Group, Price, as_bands, descend, members
from airprune.planning.feasibility import min_deadline_s
from airprune.settings.section import Count

# Every set of devices is priced at every edge.
MOST_DEVICES = 10


def node_times_s(view: AssociationView, groups: Sequence[Group]) -> Array:
    """E_k rounds of the soonest end that shares allow, then the model's way up.  [num_groups]"""
    problem = view.problem(*as_bands(groups))
    station = np.array([k for k, _ in groups])
    return view.rounds[station] * min_deadline_s(problem, problem.largest_model_weights) + view.link_s[station]


def exact(count: int, num_edges: int, price: Price) -> Array:
    """The assignment with the smallest worst cost: best[S] = min over A ⊆ S of max(cost_k(A), best before k [S \\ A]).

    [num_devices]; S and A are numbers whose bits are devices; ties: the smaller A.
    """
    subsets = np.arange(2**count)
    bits = (subsets[:, None] >> np.arange(count)) & 1 == 1
    devices = [tuple(np.flatnonzero(row).tolist()) for row in bits]
    best = np.where(subsets == 0, 0.0, np.inf)
    taken: list[Array] = []
    for k in range(num_edges):
        cost = np.concatenate([[0.0], price([(k, devices[subset]) for subset in subsets[1:].tolist()])])
        after, chosen = np.empty_like(best), np.empty_like(subsets)
        for whole in subsets.tolist():
            part = subsets[(subsets & ~whole) == 0]
            worst = np.maximum(cost[part], best[whole ^ part])
            chosen[whole], after[whole] = part[np.argmin(worst)], worst.min()
        best = after
        taken.append(chosen)
    edge, left = np.zeros(count, dtype=np.int64), 2**count - 1
    for k in range(num_edges - 1, -1, -1):
        edge[bits[taken[k][left]]] = k
        left ^= int(taken[k][left])
    return edge


def descended(upload_s: Array, price: Price, *, exchanges: bool) -> Array:
    """The better end of two descents: from list scheduling, and from the best channel of each device.

    List scheduling looks at loads alone and may send devices round in a ring, out of which no exchange of two leads.
    """
    num_edges = upload_s.shape[1]
    starts = listed(upload_s.min(axis=1), num_edges, price), upload_s.argmin(axis=1)
    ends = [descend(start, num_edges, price, worst=True, exchanges=exchanges) for start in starts]
    return min(ends, key=lambda edge: max(price([g for k in range(num_edges) if (g := members(edge, k))[1]])))


def listed(least_s: Array, num_edges: int, price: Price) -> Array:
    """The device that takes longest first, each to the edge that then ends first.  [num_devices]"""
    edge, costs = np.full(len(least_s), -1), Costs(price)
    for n in np.argsort(-least_s, kind="stable").tolist():
        groups = [members(edge, k, plus=n) for k in range(num_edges)]
        costs.ask(iter(groups))
        edge[n] = int(np.argmin([costs[group] for group in groups]))
    return edge


class Ina(Association):
    """Associates by when the slowest edge ends."""

    name = "ina"
    summary = "association that minimises the time of the slowest edge, backhaul included"
    source = "after Dinh et al. (in-network aggregation)"

    exact_up_to: Count = Field(
        default=MOST_DEVICES,
        le=MOST_DEVICES,
        description="largest number of devices for which the exact optimum is computed",
    )
    exchanges: bool = Field(
        default=True, description="local search also exchanges pairs of devices; slow on large networks"
    )

    def decide(self, view: AssociationView, values: Values) -> tuple[Served, Values]:
        def price(groups: Sequence[Group]) -> Array:
            return node_times_s(view, groups)

        count, num_edges = view.network.num_devices, view.network.num_edges
        if count <= self.exact_up_to:
            edge = exact(count, num_edges, price)
        else:
            edge = descended(view.upload_s(), price, exchanges=self.exchanges)
        return view.served_by(edge), values
