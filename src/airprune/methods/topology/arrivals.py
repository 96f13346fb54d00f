"""Edges that do not wait for all: a round ends with the K-th arrival, later updates count in the round they arrive in.

A device begins with the newest model of its edge as soon as the edge has used its last update, and works on that model
for as long as it takes, however many rounds of the edge go by: s of them is the staleness of its update. An edge waits
for a device whose update would be staler than it has models for.

    k-of-n     w ← w + Σ ω_i Δ_i,  ω_i = p_i (1 + s_i)^−a / Σ p_j (1 + s_j)^−a
    buffered   w ← w + η_g Σ p_i (1 + s_i)^−a Δ_i,  p_i = 1 / number of arrivals

The clock is exact to the event: work goes on while an edge waits for the cloud. Where the downlink is charged, work in
progress stands still while the edge sends its model.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, Values, per_device
from airprune.methods.outcome import GlobalOutcome
from airprune.methods.topology.base import HISTORY, Array, Due, DueView, WiredTopology
from airprune.settings.section import NonNegative, Positive, Ratio

LEFT, LAG, EDGE = "arrivals.left_s", "arrivals.lag", "arrivals.edge"
# A time that is longer by less than this factor is rounding.
_ROUNDING = 1.0 + 1e-12


def closing_time_s(left_s: Array, count: int, must: Array) -> float:
    """Returns when the `count`-th of these arrives, or all of them if fewer, and every one that it must wait for."""
    ordered = np.sort(left_s[~np.isnan(left_s)])
    if not len(ordered):
        return 0.0
    return float(max(ordered[min(count, len(ordered)) - 1], np.max(left_s[must], initial=0.0)))


class Arrivals(WiredTopology):
    """The shared part of edges that close a round before all have arrived."""

    fully_open: ClassVar = {"share": 1.0}

    share: Ratio = Field(
        default=0.6, gt=0.0, description="share of an edge's devices whose arrival ends its round, rounded up; 1: all"
    )
    staleness_power: NonNegative = Field(
        default=0.5, description="a: an update that began s rounds ago counts (1 + s)^−a times; 0: like a fresh one"
    )
    models: Annotated[int, Field(ge=1, le=64)] = Field(
        default=8, description="models that an edge stores: it waits for a device that began so many rounds ago"
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Stores an edge's last models; of a device how long it still works (NaN: it begins), its lag and its edge."""
        return (
            Slot(name=HISTORY, owner=Owner.EDGE, shape=lambda shape: (self.models, shape.num_state), dtype="<f8"),
            Slot(name=LEFT, owner=Owner.RUN, shape=per_device, dtype="<f8", start=np.nan),
            Slot(name=LAG, owner=Owner.RUN, shape=per_device, dtype="<i8"),
            Slot(name=EDGE, owner=Owner.RUN, shape=per_device, dtype="<i8"),
        )

    def due(self, view: DueView, values: Values) -> tuple[Due, Values]:
        left_s, lag, edge = (values[name].copy() for name in (LEFT, LAG, EDGE))
        mine = left_s[view.device]
        mine = np.where(np.isnan(mine) | (edge[view.device] != view.edge), view.latency_s, mine)
        began = np.where(np.isnan(left_s[view.device]) | (edge[view.device] != view.edge), 0, lag[view.device])
        period_s = np.zeros(len(view.device))
        for k in np.unique(view.edge).tolist():
            here = view.edge == k
            count = int(np.ceil(self.share * np.count_nonzero(here) - 1e-9))
            period_s[here] = closing_time_s(mine[here], count, (began[here] == self.models - 1) & ~np.isnan(mine[here]))
        delivers = mine <= period_s * _ROUNDING
        edge[view.device] = view.edge
        left_s[view.device] = np.where(delivers, np.nan, mine - period_s)
        lag[view.device] = np.where(delivers, 0, began + 1)
        due = Due(delivers=delivers, lag=began, period_s=period_s, begins=began == 0)
        return due, {LEFT: left_s, LAG: lag, EDGE: edge}

    def after_global_round(self, outcome: GlobalOutcome, values: Values) -> Values:
        """Lets devices work on while their edge waits for the cloud."""
        return {LEFT: np.maximum(values[LEFT] - outcome.waited_s[values[EDGE]], 0.0)}

    def part_weights(self, lag: Array, num_devices: Array) -> Array:
        return self.staleness_weights(num_devices / num_devices.sum(), (1.0 + lag) ** -self.staleness_power)

    @abstractmethod
    def staleness_weights(self, share: Array, factor: Array) -> Array:
        """Returns ω of the parts, given their shares of the arrivals and the factors of their staleness."""


class KOfN(Arrivals):
    """Semi-synchronous edges."""

    name = "k-of-n"
    summary = "semi-synchronous edges: a round ends when a share of the devices has arrived; late updates count later"
    source = "semi-synchronous FL with staleness weights"

    def staleness_weights(self, share: Array, factor: Array) -> Array:
        return share * factor / np.sum(share * factor)


class Buffered(Arrivals):
    """Asynchronous edges with a buffer."""

    name = "buffered"
    summary = "asynchronous edges with a buffer: the mean of the updates in it, discounted by staleness, moves the edge"
    source = "after Nguyen et al. (FedBuff)"

    share: Ratio = Field(
        default=0.2, gt=0.0, description="size of the buffer as a share of an edge's devices, rounded up; 1: all"
    )
    rate: Positive = Field(default=1.0, description="η_g: learning rate of the edge for the buffer's mean")

    def staleness_weights(self, share: Array, factor: Array) -> Array:
        return self.rate * share * factor
