"""What the round at the root of the tree costs, where a topology has rules of its own for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from airprune.wireless.channel import Radio
from airprune.wireless.network import Network

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class RootView:
    """A global round as it ends at the stations.

    Attributes:
      edge: who serves each device.  [num_devices]
      received_bits: what each station's devices have sent it in this global round.  [num_edges]
      model_bits, num_weights: of a whole model.
      cloud_rate_bps: full-band rates of all devices straight to the cloud in this round.  [num_devices]
    """

    network: Network
    radio: Radio
    edge: Array
    received_bits: Array
    model_bits: float
    num_weights: int
    cloud_rate_bps: Callable[[], Array]

    @property
    def devices_per_edge(self) -> Array:
        return np.bincount(self.edge, minlength=self.network.num_edges)


@dataclass(frozen=True, kw_only=True)
class RootRound:
    """What it takes to combine the stations' models.

    Attributes:
      latency_s: after the slowest station is done, beyond its link.
      backhaul_bits: on the links between stations and cloud, or among stations.
      uploaded_weights, uploaded_bits, energy_j: of devices that send to the cloud themselves.
      aggregator: the edge that combines in the cloud's place; None: the cloud.
    """

    latency_s: float = 0.0
    backhaul_bits: float = 0.0
    uploaded_weights: int = 0
    uploaded_bits: float = 0.0
    energy_j: float = 0.0
    aggregator: int | None = None
