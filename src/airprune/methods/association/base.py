"""The base class of associations: before a round, the station that serves each device, and its channel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from airprune.components.component import Array, Component, Values
from airprune.planning import Plan, PlanProblem
from airprune.planning.tradeoff import uplink_bits
from airprune.wireless.network import Network


@dataclass(frozen=True, kw_only=True, eq=False)
class AssociationView:
    """The network and its plans as an association sees them.

    Attributes:
      network: places and the edges that devices belong to by themselves.
      own_gain: large-scale gain to that edge.  [num_devices]
      gains: to every station; sampled when first called.  [num_devices, num_edges]
      problem: (devices, the station of each, the band of each) → the plan problem, over channels
        without small-scale fading and with limits of clock and power. A device may appear on many bands.
      plan: solves such a problem by the scheme and the options of the scenario.
      rounds: edge rounds of every station in a round of its parent.  [num_edges]
      link_s: how long a whole model takes from a station to its parent.  [num_edges]
      rng: a stream of the component's own.
    """

    network: Network
    own_gain: Array
    gains: Callable[[], Array]
    problem: Callable[[Array, Array, Array], PlanProblem]
    plan: Callable[[PlanProblem], Plan]
    rounds: Array
    link_s: Array
    round_index: int
    rng: np.random.Generator

    def served_by(self, edge: Array) -> Served:
        """Returns the association of every device with the station named, over its channel to it."""
        return Served(edge=edge, gain=self.gains()[np.arange(len(edge)), edge])

    def upload_s(self) -> Array:
        """Returns the upload time of each whole model to each station, alone on its band.  [num_devices, num_edges]"""
        count, num_edges = self.network.num_devices, self.network.num_edges
        device, station = np.divmod(np.arange(count * num_edges), num_edges)
        problem = self.problem(device, station, station)
        with np.errstate(divide="ignore"):
            seconds = uplink_bits(problem, problem.largest_model_weights) / problem.full_band_rate_bps
        return seconds.reshape(count, num_edges)


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """The station of each device from now on.

    Attributes:
      edge: station of each device.  [num_devices]
      gain: large-scale gain to it.  [num_devices]
      interrupted: devices that lose this round's upload; None: no device.  [num_devices] bool
    """

    edge: Array
    gain: Array
    interrupted: Array | None = None


class Association(Component):
    """One way to associate devices with stations.

    Attributes:
      when: once for the whole run, before each global round, or before every edge round.
    """

    when: ClassVar[Literal["run", "global", "edge"]] = "run"

    @abstractmethod
    def decide(self, view: AssociationView, values: Values) -> tuple[Served, Values]:
        """Returns the station of each device, and the slots as they are from now on."""
