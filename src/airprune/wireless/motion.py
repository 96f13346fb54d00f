"""Devices that move: their gains to all stations as a function of time.

    traces      gains or rates of a file, see `traces`
    waypoints   random waypoint: every device goes straight to a random place at its speed, then to the next

Both are functions of time alone, so that all methods meet the same movement and a resumed run goes on with it. A moving
device keeps the random numbers of its links: its shadowing stays, and it gains or loses line of sight where the
probability at its distance passes its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from airprune.checks import FloatArray
from airprune.randomness import rng_for
from airprune.wireless.channel import LinkGain, Links, Radio
from airprune.wireless.network import Network
from airprune.wireless.traces import Traces


class Motion(Protocol):
    """Gains over time."""

    def gains(self, time_s: float, gain_of: LinkGain) -> FloatArray:
        """Returns the large-scale gain of every device to every station.  [num_devices, num_stations]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Traced:
    """Gains of a file, which begins at `start_s` of its own time."""

    traces: Traces
    radio: Radio
    start_s: float = 0.0

    def gains(self, time_s: float, gain_of: LinkGain) -> FloatArray:
        return self.traces.gains(self.start_s + time_s, self.radio)


@dataclass(frozen=True, kw_only=True, eq=False)
class Waypoints:
    """Random waypoint movement within a disc around the cloud, without pauses.

    Attributes:
      speed_m_per_s: of every device.
      radius_m: of the disc.
      start_s: time of the movement at which a run begins.
    """

    network: Network
    radio: Radio
    seed: int
    speed_m_per_s: float
    radius_m: float
    start_s: float = 0.0

    def positions_m(self, time_s: float) -> FloatArray:
        """Returns where every device is.  [num_devices, 2]"""
        place = np.array(self.network.device_position_m)
        left_m = np.full(len(place), (self.start_s + time_s) * self.speed_m_per_s)
        leg = 0
        while (going := left_m > 0.0).any():
            across, around = rng_for(self.seed, "waypoint", leg).random((len(place), 2)).T
            away, angle = self.radius_m * np.sqrt(across), 2.0 * np.pi * around
            target = self.network.cloud_position_m + np.column_stack((away * np.cos(angle), away * np.sin(angle)))
            way = target - place
            length = np.hypot(*way.T)
            part = np.where(going, np.minimum(left_m / np.maximum(length, 1e-9), 1.0), 0.0)
            place = place + part[:, np.newaxis] * way
            left_m = left_m - np.where(going, np.maximum(length, 1e-9), 0.0)
            leg += 1
        return place

    def gains(self, time_s: float, gain_of: LinkGain) -> FloatArray:
        place, network = self.positions_m(time_s), self.network
        stations = network.edge_position_m
        if network.topology == "flat":
            stations = network.cloud_position_m[np.newaxis]
        found = np.empty((len(place), len(stations)))
        for k, station in enumerate(stations):
            distance_m = np.hypot(*(place - station).T)
            key = () if network.topology == "flat" else (k + 1,)
            found[:, k] = gain_of(Links(distance_m=distance_m, radio=self.radio, seed=self.seed, key=key))
        own = gain_of(Links(distance_m=np.hypot(*(place - stations[network.edge]).T), radio=self.radio, seed=self.seed))
        found[np.arange(len(place)), network.edge] = own  # the link as `large_scale_gain` samples it
        return found
