"""The base class of topologies: a tree of averaging nodes. Its leaves are the stations, whose devices share a band.

    root (the cloud) ── level 0 ── level 1 ── … ── the last level: stations ── devices

Every level has the parent of each node, how many rounds a node runs in one round of its parent, and how fast its link
to the parent is. The rounds of a level go on in step; a node that has fewer of them waits for the others at its parent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from airprune.components.component import Array, Component, Values
from airprune.errors import InvalidValue
from airprune.methods.topology.relay import Relay, RelayView
from airprune.planning.problem import PlanProblem
from airprune.settings.section import Positive
from airprune.wireless.channel import Radio
from airprune.wireless.network import Network

HISTORY = "topology.models"


@dataclass(frozen=True, kw_only=True, eq=False)
class Level:
    """The nodes at one distance from the root.  Arrays [num_nodes]

    Attributes:
      name: what its rounds are called, e.g. "edge".
      parent: index of each node's parent in the level above; all 0 below the root.
      rounds: how many rounds each node runs in one round of its parent.
      rate_bps: of the link to the parent; infinite for a link that takes no time.
    """

    name: str
    parent: Array
    rounds: Array
    rate_bps: Array

    @property
    def num_nodes(self) -> int:
        return len(self.parent)


@dataclass(frozen=True, eq=False)
class Tree:
    """All levels below the root, from the top down. Node 0 is the root; then come the levels' nodes in their order."""

    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        above = 1
        for level in self.levels:
            if not len(level.parent) == len(level.rounds) == len(level.rate_bps):
                raise InvalidValue("Tree", "needs parent, rounds and rate of every node", level.name)
            if np.any((level.parent < 0) | (level.parent >= above)):
                raise InvalidValue(f"Tree, level {level.name}, parent", f"must lie in 0..{above - 1}", level.parent)
            above = level.num_nodes

    @property
    def num_nodes(self) -> int:
        return 1 + sum(level.num_nodes for level in self.levels)

    @property
    def depth(self) -> int:
        """Levels below the root."""
        return len(self.levels)

    def nodes(self, level: int) -> slice:
        """Returns the place of a level's nodes among all; level −1 is the root alone."""
        if level < 0:
            return slice(0, 1)
        start = 1 + sum(part.num_nodes for part in self.levels[:level])
        return slice(start, start + self.levels[level].num_nodes)

    def max_rounds(self, level: int) -> int:
        return int(self.levels[level].rounds.max())

    def active(self, level: int, counters: Sequence[int]) -> Array:
        """Returns the nodes of a level that have rounds left, given how many each level has run.  [num_nodes] bool"""
        alive = np.ones(1, dtype=bool)
        for part, done in zip(self.levels[: level + 1], counters, strict=False):
            alive = alive[part.parent] & (done < part.rounds)
        return alive

    def link_share_s(self, bits: float) -> Array:
        """Time per station round that this many bits on every link above a station take.  [num_stations]

        A link is used once per round of its upper end: Σ over the links above of bits / rate / station rounds.
        """
        place = np.arange(self.levels[-1].num_nodes)
        share_s, rounds = np.zeros(len(place)), np.ones(len(place))
        for part in reversed(self.levels):
            rounds = rounds * part.rounds[place]
            share_s += bits / part.rate_bps[place] / rounds
            place = part.parent[place]
        return share_s

    def samples_below(self, level: int, per_station: Array) -> Array:
        """Σ of a number of every station over the stations below each node of a level.  [num_nodes]"""
        total = np.asarray(per_station)
        for below in range(self.depth - 1, level, -1):
            above = self.levels[below - 1].num_nodes
            total = np.bincount(self.levels[below].parent, total, minlength=above)
        return total


@dataclass(frozen=True, kw_only=True, eq=False)
class DueView:
    """A timed round as the topology sees it before it says who delivers.  Arrays [num_selected]

    Attributes:
      device, edge: of the selected devices, ascending.
      latency_s: how long each takes that begins now; NaN if it does not arrive.
      round_index: edge rounds since the start.
    """

    device: Array
    edge: Array
    latency_s: Array
    deadline_s: float
    round_index: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Due:
    """The devices that deliver in this round, and the rounds they trained for.  Arrays [num_devices]

    Attributes:
      delivers: whether it does.
      lag: rounds since the model it started from; 0: this round's.
      period_s: duration of the round at each one's edge.
      begins: whether it starts from this round's model, and so gets it; None: those that deliver do.
    """

    delivers: Array
    lag: Array
    period_s: Array
    begins: Array | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RootView:
    """A global round as it ends at the stations.

    Attributes:
      edge: the edge of each device.  [num_devices]
      received_bits: what each station's devices have sent it in this global round.  [num_edges]
      model_bits, num_weights: of a whole model.
      down_bits: of a whole model on its way down; 0 where that is free.
      cloud_rate_bps: full-band rates of all devices straight to the cloud in this round.  [num_devices]
    """

    network: Network
    radio: Radio
    edge: Array
    received_bits: Array
    model_bits: float
    num_weights: int
    cloud_rate_bps: Callable[[], Array]
    down_bits: float = 0.0

    @property
    def devices_per_edge(self) -> Array:
        return np.bincount(self.edge, minlength=self.network.num_edges)


@dataclass(frozen=True, kw_only=True)
class RootRound:
    """The cost of combining the stations' models.

    Attributes:
      latency_s: after the slowest station is done, beyond its link.
      backhaul_bits: on the links between stations and cloud, or among stations.
      uploaded_weights, uploaded_bits, energy_j: of devices that send to the cloud themselves.
      downlink_s, downlink_bits, station_energy_j: of the cloud's downlink to devices; its time is in `latency_s` too.
      d2d_bits, d2d_energy_j: of devices that pass the model on; its energy is in `energy_j` too.
      aggregator: the edge that combines in the cloud's place; None: the cloud.
    """

    latency_s: float = 0.0
    backhaul_bits: float = 0.0
    uploaded_weights: int = 0
    uploaded_bits: float = 0.0
    energy_j: float = 0.0
    downlink_s: float = 0.0
    downlink_bits: float = 0.0
    station_energy_j: float = 0.0
    d2d_bits: float = 0.0
    d2d_energy_j: float = 0.0
    aggregator: int | None = None


class Topology(Component):
    """One kind of tree, and what it does on its links. What is not overridden does nothing and costs nothing.

    Attributes:
      stations: whether the edges serve the devices, or the cloud itself over one band.
      adapts: whether its edge rounds keep the deadline if the scheme does.
      masters: whether its relay hands updates to a device that may combine them by the rule of the edge's aggregation.
      apart: whether the models of the nodes below the root stay apart: the root sends nothing down, and the mean of
        their predictions is evaluated. The root's own model is their mean, which is not used.
    """

    stations: ClassVar[Literal["edges", "cloud"]] = "edges"
    adapts: ClassVar[bool] = True
    masters: ClassVar[bool] = False
    apart: ClassVar[bool] = False

    def build(self, rounds: Array) -> Tree:
        """Returns the tree, given the rounds of every station per round of its parent.

        Unless overridden, all stations are children of the root over links that take no time.
        """
        return star(rounds)

    def relay(self, view: RelayView) -> Relay | None:
        """Returns what devices do among themselves before the uplink; None: nothing.

        Devices that then upload are planned; the others are not.
        """
        return None

    def root(self, view: RootView) -> RootRound | None:
        """Returns what the round at the root costs beyond the links of the tree; None: nothing."""
        return None

    def deadlines(self, problem: PlanProblem) -> Array | None:
        """Returns T_th of each device of a plan problem, where they differ; None: they do not.  [num_devices]"""
        return None

    def due(self, view: DueView, values: Values) -> tuple[Due | None, Values]:
        """Returns which devices deliver now, None for all, and its slots as they change. Not together with `relay`.

        Devices that started from different models are averaged apart, then combined by `part_weights`. Needs the slot
        `HISTORY`: the models with which the last rounds of each edge began, the latest first.
        """
        return None, {}

    def part_weights(self, lag: Array, num_devices: Array) -> Array | None:
        """Returns ω of each part of an edge's devices that began `lag` rounds ago: w ← w + Σ ω (w_part − its start).

        None: the edge's model becomes the mean of the parts' models, each counted once.  [num_parts]
        """
        return None

    @property
    def top(self) -> int:
        """The level whose models are evaluated and sent down: −1 is the root."""
        return 0 if self.apart else -1


class WiredTopology(Topology):
    """A topology whose stations have links to the cloud, or to nodes below it, that may take time."""

    backhaul_bps: Positive | None = Field(
        default=None, description="backhaul rate of every edge; none: takes no time, as in the paper"
    )

    def build(self, rounds: Array) -> Tree:
        return star(rounds, self.wired_bps)

    @property
    def wired_bps(self) -> float:
        """Rate of one link; infinite where it takes no time."""
        return math.inf if self.backhaul_bps is None else self.backhaul_bps


def star(rounds: Array, rate_bps: float = math.inf) -> Tree:
    """Returns the tree whose stations are all children of the root."""
    return Tree((edges_below(np.zeros(len(rounds), dtype=np.int64), rounds, rate_bps),))


def edges_below(parent: Array, rounds: Array, rate_bps: float) -> Level:
    """The last level of most trees."""
    return Level(name="edge", parent=parent, rounds=rounds, rate_bps=np.full(len(rounds), rate_bps))
