"""LanFL: an edge's devices are a LAN and average among themselves; one of each LAN uploads to the cloud.

A ring all-reduce of whole models takes every device 2 (n − 1) / n times the model's bits over its own full-duplex link.
After the LAN's rounds the device with the best link to the cloud uploads for all; those of all LANs share the cloud's
band so that they end together, Σ bits / r_n. There is no edge server, so the edge's band, deadline and plan are idle.

After an all-reduce every device has the average, so an edge round needs no downlink. Where `radio.downlink` charges it,
the cloud's model comes back once per global round to the same devices, by broadcast or in turn, or over `wan_bps`; they
pass it on along their LAN, each device to the next as it arrives, which takes the model's bits over the LAN's rate.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.methods.topology.base import Array, RootRound, RootView, Topology
from airprune.methods.topology.relay import Relay, RelayView
from airprune.settings.section import Positive
from airprune.wireless.channel import downlink_rate_bps


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
        energy_j, best_bps = 0.0, None
        if self.wan_bps is not None:
            latency_s = view.model_bits / self.wan_bps
        else:
            rate_bps = view.cloud_rate_bps()
            best_bps = np.array([rate_bps[view.edge == lan].max() for lan in lans])
            latency_s = float(np.sum(view.model_bits / best_bps))
            energy_j = len(lans) * (view.radio.transmit_power_w / view.radio.amplifier_efficiency) * latency_s
        up = RootRound(
            latency_s=latency_s,
            uploaded_weights=len(lans) * view.num_weights,
            uploaded_bits=len(lans) * view.model_bits,
            energy_j=energy_j,
        )
        return self._with_way_back(up, view, best_bps) if view.down_bits else up

    def _with_way_back(self, up: RootRound, view: RootView, best_bps: Array | None) -> RootRound:
        """Adds the cloud's model on its way to all devices; over the radio at these uplink rates, unless None."""
        sizes = view.devices_per_edge[view.devices_per_edge > 0]
        on_radio = best_bps is not None and view.radio.downlink == "broadcast"
        bits = view.down_bits if on_radio else len(sizes) * view.down_bits
        receive_j = station_j = 0.0
        if best_bps is None:
            down_s = view.down_bits / (self.wan_bps or math.inf)
        else:
            each_s = view.down_bits / downlink_rate_bps(best_bps, view.radio)
            down_s = float(each_s.max() if on_radio else each_s.sum())
            listens_s = len(sizes) * down_s if on_radio else down_s
            receive_j = view.radio.receive_power_w * listens_s
            station_j = view.radio.downlink_power_w * down_s
        passes = int(np.sum(sizes - 1))
        pass_s = view.down_bits / self.rate_bps
        return replace(
            up,
            latency_s=up.latency_s + down_s + (pass_s if passes else 0.0),
            downlink_s=down_s,
            downlink_bits=bits,
            station_energy_j=station_j,
            d2d_bits=passes * view.down_bits,
            d2d_energy_j=passes * self.power_w * pass_s,
            energy_j=up.energy_j + receive_j + passes * self.power_w * pass_s,
        )
