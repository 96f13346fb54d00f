"""Messages between an edge and its devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from airprune.methods.compression.base import Message
from airprune.methods.masking.base import SubModel

Array = np.ndarray
NOTHING: Mapping[str, Array] = {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Broadcast:
    """The message of an edge to all of its devices.

    Attributes:
      model: w_k, a flat state.  [num_state]
      mask: what the masking prepared for all devices, if it did: a mask [num_prunable], or numbers for each device.
      values: slots of the cloud that the objective needs.
    """

    model: Array
    mask: Array | None = None
    values: Mapping[str, Array] = field(default_factory=dict)


class Orders(NamedTuple):
    """The orders of an edge to one device. A tuple, as uploads are: both are made for every device and round.

    Attributes:
      keep: whole prunable weights that it may hold or send.
      round_index: edge rounds since the start of the run.
      code: what to send with, if the planner has chosen it: see `Wire.code`.
      local_steps: after which it stops; None: as its settings say.
      memory: the device's slots, if it does not keep them itself.
      first_trained: lowest layer that it trains, as in `SubModel`; the higher one counts.
      time_left_s: seconds until the deadline of the round, for training loops; None where there is none.
      last_trained: highest layer that it trains, as in `SubModel`.
      hidden_among: of a secure sum, the least devices with which it can be opened; 1: the update is not hidden.
    """

    device: int
    keep: int
    learning_rate: float
    round_index: int
    code: int | None = None
    local_steps: int | None = None
    memory: Mapping[str, Array] = NOTHING
    first_trained: int = 0
    time_left_s: float | None = None
    last_trained: int | None = None
    hidden_among: int = 1


class Upload(NamedTuple):
    """The answer of a device.

    Attributes:
      state: its model as the edge decodes it, zero where nothing was sent; a view that the next device overwrites.
      mask: which prunable weights were sent; None for all.
      sent_bits: what the encoder counted; biases and buffers travel uncounted.
      message: what the encoder made; None if values travel as they are.
      code_error: the share of what was wanted that the encoder lost, ‖wanted − sent‖² / ‖wanted‖².
      report: arrays that are summed over devices.
      memory: the device's slots after the round, if it does not keep them itself.
      loss: mean training loss over the minibatches seen.
      num_samples: samples trained on, each counted once per epoch.
      gradient_sq_max: the largest ‖∇F(w, ξ)‖² seen, for φ² of Assumption 3; NaN without diagnostics.
      gradient_noise_sq: ‖∇F(w, ξ) − ∇F(w)‖² at the received model, for σ̂² of Assumption 4; NaN without diagnostics.
      smoothness: ‖∇F(w) − ∇F(w′)‖ / ‖w − w′‖ over the round, for L of Assumption 1; NaN without diagnostics.
      pruning_error_sq: ‖w − w ⊙ m‖², for D² of Assumption 2.
      num_kept: how many entries of `mask` are true, if already counted.
      sub_model: what it held, trained and sent; never leaves the device's process, so None where it has travelled.
      first_trained: the lowest layer that it trained and sent; it does not count in the average of those below.
      last_trained: the highest one, likewise; None: the top.
    """

    state: Array
    mask: Array | None
    sent_bits: float
    message: Message | None
    code_error: float
    report: Mapping[str, Array]
    memory: Mapping[str, Array]
    loss: float
    num_samples: int
    gradient_sq_max: float
    gradient_noise_sq: float
    smoothness: float
    pruning_error_sq: float
    num_kept: int | None = None
    sub_model: SubModel | None = None
    first_trained: int = 0
    last_trained: int | None = None
