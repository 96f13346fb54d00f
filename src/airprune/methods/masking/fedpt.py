"""FedPT: one random part of the weights is trained and sent; the rest stays as it was initialised.

All devices sample the same order of the weights from the seed, so no mask is sent. A round trains the first of
them, as many as the tightest device can send: where channels stand still, the same part for the whole run.
"""

from __future__ import annotations

from typing import ClassVar

from airprune.methods.masking.base import Array, DeviceView, Masking, RoundView, SubModel, Values, as_prepared
from airprune.methods.masking.core.masks import choose_mask


class FedPt(Masking):
    """Training of one random part."""

    name = "fedpt"
    summary = "partial training: one fixed random part of the weights is trained, the rest frozen"
    source = "after FedPT (Sidahmed et al.)"
    dense_compute = 2 / 3  # forward pass and input gradients; weight gradients only for what moves
    by_data: ClassVar[bool] = False

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        """The first weights of a random order that is the same in every round."""
        keep, layers = int(view.keep.min()), view.shape.layers
        if keep >= layers.num_weights:
            return None, values
        return choose_mask(view.run_rng().random(layers.num_weights), keep=keep, layers=layers), values

    def counts(self, view: RoundView, shared: Array | None) -> Array:
        return as_prepared(view, shared)

    def choose(self, view: DeviceView) -> SubModel:
        """Holds and uses all weights; those of the common mask are trained and sent."""
        return SubModel(sent=view.shared, moves=view.shared)
