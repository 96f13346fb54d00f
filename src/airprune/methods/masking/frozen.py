"""Partial training: what does not fit stays at its received value on the device, is not sent and does not move.

The forward pass then is that of the dense model, so local steps repair no damage. Freezing part of the weights is
known from FedPT, FedPart and FedPLT; here the part is the paper's mask, new in every round.
"""

from __future__ import annotations

from airprune.methods.masking.base import WHOLE, DeviceView, SubModel
from airprune.methods.masking.probe import Probe
from airprune.methods.masking.ranking import ranked_mask


class Frozen(Probe):
    """The paper's choice, without its zeros."""

    name = "frozen"
    summary = "as probe, but pruned weights keep their received values (partial training)"
    source = "own; after partial training (FedPT, FedPart, FedPLT)"
    dense_compute = 2 / 3  # forward pass and input gradients; weight gradients only for what moves

    def choose(self, view: DeviceView) -> SubModel:
        mask = ranked_mask(self, view)
        return WHOLE if mask is None else SubModel(sent=mask, moves=mask)
