"""Device-to-device groups of an edge before the uplink: members, times, bits and joules.

Devices of a group send to its head one after the other; groups do so at the same time, or take turns. Only then is the
edge's band free for the uplink, so all devices of an edge with a relay wait for its last group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from airprune.checks import FloatArray
from airprune.components.component import Array
from airprune.wireless.channel import Radio


@dataclass(frozen=True, kw_only=True, eq=False)
class RelayView:
    """The selected devices, as a topology sees them before the plan.  Arrays [num_devices], in one order

    Attributes:
      edge: the edge of each.
      full_band_rate_bps: r_n to its edge.
      compute_s: how long it trains the whole model.
      model_bits: what it sends if it keeps every weight.
      positions_m: places of all devices; an error where the network knows none.  [num_devices, 2]
    """

    edge: Array
    full_band_rate_bps: Array
    compute_s: Array
    model_bits: Array
    radio: Radio
    positions_m: Callable[[], Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class Relay:
    """The transmissions between devices before the uplink.  Arrays [num_devices]

    Attributes:
      head: place of the device whose group each is in; a device alone heads itself.
      uploads: whether it then sends to the edge, for all of its group.
      sends: bits that each sends to other devices, per bit of its own update; 0 if nothing.
      rate_bps: over which it does.
      power_w: that it takes while it does.
      takes_turns: whether the groups of an edge send one after the other, on a band that they share.
    """

    head: Array
    uploads: Array
    sends: Array
    rate_bps: Array
    power_w: float
    takes_turns: bool = False

    @property
    def is_idle(self) -> bool:
        """True if all devices upload, and nothing else happens."""
        return not np.any(self.sends > 0.0) and bool(self.uploads.all())

    @property
    def group_size(self) -> Array:
        """Devices of each one's group."""
        sizes: Array = np.bincount(self.head, minlength=len(self.head))[self.head]
        return sizes

    def sending_s(self, bits: Array) -> FloatArray:
        """Returns how long each sends to other devices, given the bits of its own update."""
        return np.where(self.sends > 0.0, self.sends * bits / self.rate_bps, 0.0)

    def over_s(self, compute_s: Array, bits: Array, edge: Array) -> FloatArray:
        """Returns when the relaying of each device's edge is over; 0 where no device relays.

        max over the edge's groups of (its slowest training + Σ of its devices' turns); where groups take turns, they do
        in the order in which they are ready, and + Σ of the turns of all groups that are ready no sooner.
        """
        turns_s = self.sending_s(bits)
        ready_s = np.zeros(len(turns_s))
        np.maximum.at(ready_s, self.head, compute_s)
        group_s = np.where(np.bincount(self.head, turns_s, len(turns_s)) > 0.0, ready_s, 0.0)
        if self.takes_turns:
            group_s += _turns_from(ready_s, np.bincount(self.head, turns_s, len(turns_s)), edge)
        else:
            group_s += np.bincount(self.head, turns_s, len(turns_s))
        ids, place = np.unique(edge, return_inverse=True)
        over = np.zeros(len(ids))
        np.maximum.at(over, place, group_s[self.head])
        return over[place]

    def without(self, leaves: Array) -> Relay:
        """Returns the relay in which all marked devices upload for themselves; whole groups must be marked."""
        return replace(
            self,
            head=np.where(leaves, np.arange(len(leaves)), self.head),
            uploads=self.uploads | leaves,
            sends=np.where(leaves, 0.0, self.sends),
        )


def _turns_from(ready_s: Array, turns_s: Array, edge: Array) -> Array:
    """Σ of the turns of the groups of the same edge that are ready no sooner than each; 0 for a group without turns."""
    total_s = np.zeros(len(turns_s))
    order = np.lexsort((ready_s, edge))
    for here in np.split(order, np.flatnonzero(np.diff(edge[order])) + 1):
        total_s[here] = np.cumsum(turns_s[here][::-1])[::-1]
    return np.where(turns_s > 0.0, total_s, 0.0)
