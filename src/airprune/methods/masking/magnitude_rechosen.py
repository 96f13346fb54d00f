"""Magnitude pruning whose mask is chosen anew in every global round: devices hold the cloud's largest weights that fit.

The cloud keeps every weight. One that no device holds waits at its value, and is used again as soon as others have
become smaller; one that some devices hold moves through them alone. The order is that of the cloud's last model, so a
device's weights stay the same within a global round, and devices with less time hold a part of what others do. The
order is sent to all, so no uplink says which weights are sent. Evaluated are the weights of the device that held the
most: no weight takes part that no device has trained.

This is not dynamic pruning with feedback (`dpf`): a weight that is pruned gets no gradient.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, prunable_weights
from airprune.methods.masking.base import WHOLE, Array, DeviceView, Masking, RoundView, SubModel, Values
from airprune.methods.masking.core.masks import choose_mask
from airprune.methods.masking.dpf import scheduled
from airprune.settings.section import Count, Ratio

WIDEST = "magnitude-rechosen.widest"


class MagnitudeRechosen(Masking):
    """The largest weights of a model that the cloud keeps whole."""

    name = "magnitude-rechosen"
    summary = "magnitude pruning, chosen anew in every global round: the cloud's largest weights that fit"
    source = "own; pruned weights get no gradient, unlike in dynamic pruning with feedback"
    by_data: ClassVar[bool] = False

    sparsity: Ratio = Field(default=0.0, description="final sparsity, where the deadline needs less")
    until: Count = Field(default=25, description="edge rounds until it is reached")

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The weights of the device that held the most in the last round; all before the first."""
        return (Slot(name=WIDEST, owner=Owner.RUN, shape=prunable_weights, dtype="|b1", start=1.0),)

    def prepare(self, view: RoundView, values: Values) -> tuple[Array, Values]:
        """|w| at the cloud."""
        sizes = np.abs(view.model[view.shape.prunable])
        if most := int(self.counts(view, None).max(initial=0)):
            values = values | {WIDEST: choose_mask(sizes, keep=most, layers=view.shape.layers)}
        return sizes, values

    def counts(self, view: RoundView, shared: Array | None) -> Array:
        return scheduled(view, self.sparsity, self.until)

    def choose(self, view: DeviceView) -> SubModel:
        if view.keep >= view.shape.prunable_weights:
            return WHOLE
        assert view.shared is not None
        mask = choose_mask(view.shared, keep=view.keep, layers=view.shape.layers)
        return SubModel(sent=mask, held=mask, moves=mask)

    def evaluated(self, shape: ModelShape, model: Array, values: Values) -> Array:
        """Returns the model that the device with the most weights has trained."""
        if values[WIDEST].all():
            return model
        used = model.copy()
        used[shape.prunable] *= values[WIDEST]
        return used
