"""FogFL: no cloud; after every global round one of the edges, chosen by latency and workload, averages for all.

    U_i = α L_i / max L + (1 − α) O_i / max O                     smallest U; ties: the lower number
    L_i = max_j (model bits / rate + d_ij / c) + cycles / f + 1 / (μ_i − N_i)
    O_i = bytes that edge i has received from its devices in this global round

among edges with O_i ≤ O_max, L_i ≤ L_max and N_i < μ_i. If there is none, the cloud averages. Only the clock and the
links differ from `hierarchical`: the model is the same to the bit. Where the downlink is charged, the averaging edge
sends the model back over the same links, max_j (model bits / rate + d_ij / c) after it has averaged.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.methods.topology.base import Array, RootRound, RootView, Topology
from airprune.settings.section import NonNegative, Positive, Ratio

_LIGHT_M_PER_S = 299_792_458.0


def utility(latency_s: Array, workload: Array, *, alpha: float) -> Array:
    """U_i: both in parts of their largest value, since their units differ; infinite where the latency is."""
    finite = np.isfinite(latency_s)
    largest_s, largest = np.max(latency_s[finite], initial=0.0), np.max(workload[finite], initial=0.0)
    waits, works = np.where(finite, latency_s, 0.0) / (largest_s or 1.0), workload / (largest or 1.0)
    return np.where(finite, alpha * waits + (1.0 - alpha) * works, np.inf)


def chosen_edge(
    latency_s: Array,
    workload: Array,
    *,
    alpha: float,
    max_latency_s: float | None = None,
    max_workload: float | None = None,
) -> int | None:
    """argmin U_i over the edges that may average; an infinite latency excludes one. None if no edge may."""
    may = np.isfinite(latency_s)
    if max_latency_s is not None:
        may &= latency_s <= max_latency_s
    if max_workload is not None:
        may &= workload <= max_workload
    if not may.any():
        return None
    return int(np.argmin(np.where(may, utility(latency_s, workload, alpha=alpha), np.inf)))


def queueing_s(num_devices: Array, service_rate: Array) -> Array:
    """1 / (μ − N); infinite where requests exceed the service rate."""
    spare = service_rate - num_devices
    return np.where(spare > 0.0, 1.0 / np.where(spare > 0.0, spare, 1.0), np.inf)


def _link_s(bits: float, rate_bps: float | None) -> float:
    return 0.0 if rate_bps is None else bits / rate_bps


class Fog(Topology):
    """Has one of the edges average in the cloud's place."""

    name = "fog"
    summary = "one of the edges, chosen by latency and workload, averages for all"
    source = "after FogFL (Saha, Misra, Deb): its choice of the aggregating node"
    fully_open: ClassVar = {}

    alpha: Ratio = Field(default=0.5, description="weight of latency; workload has 1 − alpha")
    rate_bps: Positive | None = Field(default=1e9, description="rate between any two edges; none: takes no time")
    cloud_bps: Positive | None = Field(
        default=None, description="rate of each edge to the cloud, used if no edge may average; none: takes no time"
    )
    backhaul_bps: Positive | None = Field(
        default=None, description="rate of every link above the edges, in place of rate_bps and cloud_bps; none: those"
    )
    max_latency_s: Positive | None = Field(
        default=None, description="L_max: largest latency of an edge that may average; none: any"
    )
    max_workload_bytes: Positive | None = Field(
        default=None, description="O_max: largest workload of an edge that may average; none: any"
    )
    cycles_per_weight: NonNegative = Field(default=1.0, description="CPU cycles to add one weight of one edge's model")
    cpu_hz: Positive = Field(default=3e9, description="CPU frequency of an edge")
    service_factor: Positive = Field(default=10.0, description="μ_i / N_i: requests served per second and device")

    def root(self, view: RootView) -> RootRound:
        latency_s = self.latencies_s(view)
        edge = chosen_edge(
            latency_s,
            view.received_bits / 8.0,
            alpha=self.alpha,
            max_latency_s=self.max_latency_s,
            max_workload=self.max_workload_bytes,
        )
        num_edges, both_ways = view.network.num_edges, view.model_bits + view.down_bits
        if edge is None:
            return RootRound(
                latency_s=_link_s(both_ways, self.backhaul_bps or self.cloud_bps), backhaul_bits=num_edges * both_ways
            )
        back_s = float(self._links_s(view, view.down_bits)[edge].max()) if view.down_bits else 0.0
        return RootRound(
            latency_s=float(latency_s[edge]) + back_s, backhaul_bits=(num_edges - 1) * both_ways, aggregator=edge
        )

    def latencies_s(self, view: RootView) -> Array:
        """L_i of every edge.  [num_edges]"""
        adding_s = self.cycles_per_weight * view.num_weights * view.network.num_edges / self.cpu_hz
        devices = view.devices_per_edge
        waits_s = queueing_s(devices, self.service_factor * devices)
        return self._links_s(view, view.model_bits).max(axis=1) + adding_s + waits_s

    def _links_s(self, view: RootView, bits: float) -> Array:
        """Time of so many bits between any two edges.  [num_edges, num_edges]"""
        place = view.network.edge_position_m
        distance_m = np.hypot(*(place[:, np.newaxis] - place[np.newaxis]).transpose(2, 0, 1))
        link_s = _link_s(bits, self.backhaul_bps or self.rate_bps) + distance_m / _LIGHT_M_PER_S
        np.fill_diagonal(link_s, 0.0)
        return link_s
