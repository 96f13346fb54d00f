"""D2D-FedAvg: near devices hand their updates to a master, which uploads one model for all of them.

Grouping, at every edge and in every edge round: devices by rate, the best first; a device without a group becomes a
master and takes the nearest such devices within reach. Members send to their master in turn over the whole band. The
groups of a cell take turns as well, or, with `reuse`, all of them send at the same time and interfere:

    SINR = g p / (sigma^2 + Σ over the cell's other groups of their strongest member's g p at this master)

Then the masters share the uplink as the scheme says. A member leaves if the round would end earlier with its own
upload. The master adds with counts, so the edge's average is that of all devices whatever the groups. Cells do not
interfere with each other, as in the paper.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.methods.topology.base import Array, WiredTopology
from airprune.methods.topology.relay import Relay, RelayView
from airprune.settings.section import Count, Decibel, NonNegative, Positive
from airprune.units import db_to_ratio, dbm_to_watt
from airprune.wireless.channel import Radio, full_band_rate_bps, path_loss_db


def masters(rate_bps: Array, distance_m: Array, *, max_distance_m: float, max_members: int) -> Array:
    """Place of each device's master; its own if it is one.  [num_devices]

    Args:
      rate_bps: of each to the edge; ties: the lower number first.
      distance_m: between any two.  [num_devices, num_devices]
    """
    master = np.full(len(rate_bps), -1)
    if max_distance_m == 0.0:
        return np.arange(len(rate_bps))
    for n in np.argsort(-rate_bps, kind="stable").tolist():
        if master[n] >= 0:
            continue
        master[n] = n
        free = np.flatnonzero((master < 0) & (distance_m[n] <= max_distance_m))
        master[free[np.argsort(distance_m[n, free], kind="stable")[:max_members]]] = n
    return master


def without_slow_members(master: Array, turn_s: Array, upload_s: Array) -> Array:
    """The groups, which take turns, after members have left whose own upload takes less.  [num_devices]

    The round ends after the turns of all members and the masters' uploads, which take Σ upload_s if they end together.

    Args:
      turn_s, upload_s: as of `without_leavers`.
    """
    alone = np.arange(len(master))
    return np.where((master != alone) & (upload_s < turn_s), alone, master)


def without_leavers(master: Array, turn_s: Array, upload_s: Array) -> Array:
    """The groups, which send at the same time, after members have left whose own upload ends the round earlier.

    The round ends after the slowest group's turns and the masters' uploads, which take Σ upload_s if they end together.
    Only a member of the slowest group can end it earlier: the one with the largest gain goes first.  [num_devices]

    Args:
      turn_s: how long each sends to its master; 0 for masters.
      upload_s: how long each would need the whole band of the edge.
    """
    master = master.copy()
    while True:
        turns_s = np.where(master == np.arange(len(master)), 0.0, turn_s)
        group_s = np.bincount(master, turns_s, len(master))
        slowest = int(np.argmax(group_s))
        others_s = np.max(np.delete(group_s, slowest), initial=0.0)
        member = np.flatnonzero((master == slowest) & (turns_s > 0.0))
        gain_s = group_s[slowest] - np.maximum(others_s, group_s[slowest] - turns_s[member]) - upload_s[member]
        if not len(member) or gain_s.max() <= 0.0:
            return master
        leaver = member[int(np.argmax(gain_s))]
        master[leaver] = leaver


def d2d_rate_bps(distance_m: Array, radio: Radio, *, power_w: float, interference_w: Array | float = 0.0) -> Array:
    """Over the whole band, with the cell's path loss and noise; without shadowing and fading."""
    received = db_to_ratio(-path_loss_db(distance_m, radio))
    if np.any(interference_w):
        sinr = received * power_w / (radio.band_noise_w + interference_w)
    else:
        sinr = received * (power_w / radio.band_noise_w)
    rate: Array = full_band_rate_bps(sinr, radio.bandwidth_hz)
    return rate


def interference_w(master: Array, distance_m: Array, radio: Radio, *, power_w: float) -> Array:
    """Power at each device's master from the other groups of the cell, each by its strongest member.  [num_devices]

    Args:
      distance_m: between any two, at least that of the nearest path loss.  [num_devices, num_devices]
    """
    gain = db_to_ratio(-path_loss_db(distance_m, radio))
    heads = np.unique(master)
    total_w = np.zeros(len(master))
    for head in heads.tolist():
        sends = np.flatnonzero((master == head) & (np.arange(len(master)) != head))
        if len(sends):
            others = heads[heads != head]
            total_w[others] += power_w * gain[np.ix_(sends, others)].max(axis=0)
    return total_w[master]


class D2d(WiredTopology):
    """Groups near devices; options say which, and the links inside a group."""

    name = "d2d"
    summary = "D2D groups: near devices send their updates to a master, which uploads for all of them"
    source = "after D2D-FedAvg (Zhang et al.)"
    fully_open: ClassVar = {"max_distance_m": 0.0}
    masters = True

    max_distance_m: NonNegative = Field(
        default=50.0, description="largest distance of a member to its master; 0: no groups"
    )
    max_members: Count = Field(default=4, description="largest number of members of a group, besides its master")
    power_dbm: Decibel = Field(default=23.0, description="transmit power between devices")
    min_distance_m: Positive = Field(default=3.0, description="nearer devices have the path loss of this distance")
    reuse: bool = Field(
        default=False,
        description="groups of a cell send at the same time over the whole bandwidth and interfere; false: they take "
        "turns",
    )

    def relay(self, view: RelayView) -> Relay:
        count, power_w = len(view.edge), float(dbm_to_watt(self.power_dbm))
        head, rate_bps = np.arange(count), np.ones(count)
        for edge in np.unique(view.edge).tolist() if self.max_distance_m > 0.0 else ():
            here = np.flatnonzero(view.edge == edge)
            place = view.positions_m()[here]
            distance_m = np.hypot(*(place[:, np.newaxis] - place[np.newaxis]).transpose(2, 0, 1))
            uplink_bps = view.full_band_rate_bps[here]
            master = masters(uplink_bps, distance_m, max_distance_m=self.max_distance_m, max_members=self.max_members)
            distance_m = np.maximum(distance_m, self.min_distance_m)
            rate_bps[here] = self._rates_bps(master, distance_m, view.radio)
            bits, leave = view.model_bits[here], without_leavers if self.reuse else without_slow_members
            with np.errstate(divide="ignore"):
                master = leave(master, bits / rate_bps[here], bits / uplink_bps)
            if self.reuse:  # fewer groups interfere with each other now
                rate_bps[here] = self._rates_bps(master, distance_m, view.radio)
            head[here] = here[master]
        is_master = head == np.arange(count)
        return Relay(
            head=head,
            uploads=is_master,
            sends=np.where(is_master, 0.0, 1.0),
            rate_bps=rate_bps,
            power_w=power_w / view.radio.amplifier_efficiency,
            takes_turns=not self.reuse,
        )

    def _rates_bps(self, master: Array, distance_m: Array, radio: Radio) -> Array:
        """Rate of each device of a cell to its master.  [num_devices]"""
        power_w = float(dbm_to_watt(self.power_dbm))
        noise_w = interference_w(master, distance_m, radio, power_w=power_w) if self.reuse else 0.0
        link_m = distance_m[np.arange(len(master)), master]
        return d2d_rate_bps(link_m, radio, power_w=power_w, interference_w=noise_w)
