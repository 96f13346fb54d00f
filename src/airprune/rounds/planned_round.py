"""An edge round as it is planned, before anybody trains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.methods.masking.base import Charges
from airprune.methods.topology.relay import Relay

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedRound:
    """One edge round of some edges as planned.  Per-device arrays follow `device`

    Attributes:
      device: the devices that are asked, ascending.
      edge: who serves each.
      full_band_rate_bps, cpu_hz: of each, as the plan uses them.
      planned: whether it is in the plan; the others made their edge infeasible and are blocked.
      share: b_n; NaN for blocked devices.
      keep: whole prunable weights that it holds or sends.
      bits: what it will send.
      deadline_s: T_th of this round; `tunes_itself` if it was found for this round.
      power_w: transmit power, if the scheme has chosen one.
      code, bits_per_weight: which code it sends with and what that costs, if the scheme has chosen.
      charges: what the masking costs beside the weights.
      mask: what the masking prepared for everybody.
      edges, status, shadow_price: of the plan, per edge.
      relay: what the devices do among themselves before the uplink, if they do.
      carried_weights, carried_bits: what then goes up for each device's group; as for one device where there is none.
    """

    device: Array
    edge: Array
    full_band_rate_bps: Array
    cpu_hz: Array
    planned: Array
    share: Array
    keep: Array
    bits: Array
    deadline_s: float
    tunes_itself: bool
    charges: Charges
    edges: Array
    status: Array
    shadow_price: Array
    power_w: Array | None = None
    code: Array | None = None
    bits_per_weight: Array | None = None
    mask: Array | None = None
    relay: Relay | None = None
    carried_weights: Array | None = None
    carried_bits: Array | None = None

    @property
    def uplink_bits(self) -> Array:
        """What the uplink that each device's update takes carries in all."""
        return self.bits if self.carried_bits is None else self.carried_bits
