"""The outcome of a round, as every component may see it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.components.component import Array

if TYPE_CHECKING:
    from airprune.methods.masking.base import RoundView
    from airprune.methods.selection.base import Candidates


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """An edge round, settled: as it was sent, without the devices that failed, its bits checked.

    Arrays of the selected devices share one order, devices ascending.  [num_selected]

    Attributes:
      candidates: the devices among which they were selected, with the selection's slots.
      device, edge, num_samples: of the selected devices.
      arrived: whether their uploads count in the round.
      latency_s: seconds until an upload is there, in time or not; NaN if the planner excluded the device.
      loss: mean training loss; NaN for a device that did not arrive.
      round_view: the round as the masking saw it, with the mean training loss; None where no model is at hand.
      sums: arrays that devices reported, summed over all of them, by name; those of single devices under their numbers.
      keep: whole prunable weights of each device's sub-model.
      shared: the array that the masking prepared for all devices.
      step: edge rounds since the start of the global round.
      starts_global_round: whether it was the first edge round of its global round.
      uploaded_bits: what each sent; 0 if it did not arrive.
      bits_per_weight: of the compression level that the planner chose; None if it chose none.
      code_error: share of the update's energy that compression lost; NaN for a device that did not arrive.
      held: which entries of the state some device sent, or as many as must.  [num_state] bool
      trained: places of the devices that trained, in the order in which their edges summed them.
    """

    candidates: Candidates
    device: Array
    edge: Array
    num_samples: Array
    arrived: Array
    latency_s: Array
    loss: Array
    round_view: RoundView | None = None
    sums: Mapping[str, Array] = field(default_factory=dict)
    keep: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    shared: Array | None = None
    step: int = 0
    starts_global_round: bool = False
    uploaded_bits: Array = field(default_factory=lambda: np.zeros(0))
    bits_per_weight: Array | None = None
    code_error: Array = field(default_factory=lambda: np.zeros(0))
    held: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))
    trained: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def view(self) -> RoundView:
        """The round as the masking saw it."""
        assert self.round_view is not None
        return self.round_view


@dataclass(frozen=True, kw_only=True, eq=False)
class GlobalOutcome:
    """The outcome of a global round.

    Attributes:
      num_devices: of the network.
      train_loss: mean over all samples of its edge rounds; None if no device trained.
      waited_s: how long each edge waited for the others, and for its link, since its last edge round.  [num_edges]
      record: its record: metrics, and the totals since the start.
    """

    num_devices: int
    train_loss: float | None = None
    waited_s: Array = field(default_factory=lambda: np.zeros(0))
    record: Mapping[str, Any] = field(default_factory=dict)
