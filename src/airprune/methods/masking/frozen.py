"""Partial training: what does not fit stays at its received value on the device, is not sent and does not move.

The forward pass then is that of the dense model, so local steps repair no damage. Freezing part of the weights is
known from FedPT, FedPart and FedPLT; here the part is the paper's mask, new in every round.
"""

from __future__ import annotations

from airprune.methods.masking.base import WHOLE, DeviceView, Masking, SubModel
from airprune.methods.masking.probe import RankingOptions, by_gradient, charges, ranked_mask, whole_units, whole_weights


def choose(options: RankingOptions, view: DeviceView) -> SubModel:
    mask = ranked_mask(options, view)
    return WHOLE if mask is None else SubModel(sent=mask, moves=mask)


MASKING = Masking(
    name="frozen",
    summary="as probe, but what does not fit keeps its received value instead of becoming zero",
    source="own; after partial training (FedPT, FedPart, FedPLT)",
    Options=RankingOptions,
    choose=choose,
    weights=whole_weights,
    charges=charges,
    whole_units=whole_units,
    by_data=by_gradient,
    dense_compute=2 / 3,  # forward pass and input gradients; weight gradients only for what moves
)
