"""What an association is: before a round, which station serves each device, and over which channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from airprune.components import Component
from airprune.network import Network

Array = np.ndarray
Values = dict[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class AssociationView:
    """What is known before devices are assigned.

    Attributes:
      network: places and the edges that devices belong to by themselves.
      own_gain: large-scale gain to that edge.  [num_devices]
      gains: to every station; drawn when asked for.  [num_devices, num_edges]
      rng: a stream of the component's own.
    """

    network: Network
    own_gain: Array
    gains: Callable[[], Array]
    round_index: int
    rng: np.random.Generator


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """Who is served by whom from now on.

    Attributes:
      edge: station of each device.  [num_devices]
      gain: large-scale gain to it.  [num_devices]
      interrupted: devices that lose this round's upload; None for nobody.  [num_devices] bool
    """

    edge: Array
    gain: Array
    interrupted: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Association(Component):
    """One way to assign; takes the component's options first.

    Attributes:
      decide: of (view, slots) → (who is served by whom, slots).
      when: before every edge round, or once before each global round.
    """

    decide: Callable[[Any, AssociationView, Values], tuple[Served, Values]]
    when: Literal["run", "global", "edge"] = "run"


def by_largest(gains: Array) -> Served:
    """Every device at the station with the largest entry of its row; ties: the lower number."""
    edge = gains.argmax(axis=1)
    return Served(edge=edge, gain=gains[np.arange(len(edge)), edge])
