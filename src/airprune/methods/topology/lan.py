"""LanFL: an edge's devices are a LAN and average among themselves; one of each LAN uploads to the cloud.

A ring all-reduce of whole models takes every device 2 (n − 1) / n times the model's bits over its own full-duplex link.
After the LAN's rounds the device with the best link to the cloud uploads for all; those of all LANs share the cloud's
band so that they end together, Σ bits / r_n. There is no edge server, so the edge's band, deadline and plan are idle.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.methods.topology.base import Array, RootRound, RootView, Topology
from airprune.methods.topology.relay import Relay, RelayView
from airprune.settings.section import Positive


def ring_share(num_devices: Array) -> Array:
    """Bits that each of n devices sends in a ring all-reduce, per bit of the model: 2 (n − 1) / n."""
    return 2.0 * (num_devices - 1) / num_devices


class Lan(Topology):
    """Has an edge's devices average on their LAN."""

    name = "lan"
    summary = "ring all-reduce among the devices of an edge's LAN; one of them uploads to the cloud"
    source = "after LanFL (Yuan et al.)"
    fully_open: ClassVar = {}
    adapts = False

    rate_bps: Positive = Field(default=100e6, description="rate of each device's own full-duplex link in the LAN")
    power_w: Positive = Field(default=0.1, description="power of a device while it sends in the LAN")
    wan_bps: Positive | None = Field(
        default=None, description="rate of each LAN to the cloud; none: over the cloud's radio bandwidth"
    )

    def relay(self, view: RelayView) -> Relay:
        """Returns the ring of all devices at once: each is a group of its own, and none uploads."""
        count = len(view.edge)
        _, place, sizes = np.unique(view.edge, return_inverse=True, return_counts=True)
        return Relay(
            head=np.arange(count),
            uploads=np.zeros(count, dtype=bool),
            sends=ring_share(sizes[place]),
            rate_bps=np.full(count, self.rate_bps),
            power_w=self.power_w,
        )

    def root(self, view: RootView) -> RootRound:
        lans = np.flatnonzero(view.devices_per_edge)
        energy_j = 0.0
        if self.wan_bps is not None:
            latency_s = view.model_bits / self.wan_bps
        else:
            rate_bps = view.cloud_rate_bps()
            best_bps = np.array([rate_bps[view.edge == lan].max() for lan in lans])
            latency_s = float(np.sum(view.model_bits / best_bps))
            energy_j = len(lans) * view.radio.transmit_power_w * latency_s
        return RootRound(
            latency_s=latency_s,
            uploaded_weights=len(lans) * view.num_weights,
            uploaded_bits=len(lans) * view.model_bits,
            energy_j=energy_j,
        )
