"""Dynamic pruning with feedback, at the cloud: devices hold the largest weights of its model, as many as fit.

The cloud keeps every weight. One that no device holds waits at its value, and is used again as soon as others have
become smaller; one that some devices hold moves through them alone. The order is that of the cloud's last model, so a
device's weights stay the same within a global round, and devices with less time hold a part of what others do. The
order is sent to all, so no uplink says which weights are sent. The model is used, and evaluated, with the largest
weights alone: as many as the device that held the most.

Differs from `dpf`: gradients of weights that a device does not hold are neither computed nor sent.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Slot
from airprune.methods.masking.base import WHOLE, Array, DeviceView, Masking, RoundView, SubModel, Values
from airprune.methods.masking.common import count_slot
from airprune.methods.masking.core.masks import choose_mask
from airprune.methods.masking.dpf import scheduled
from airprune.settings.section import Count, Ratio

HELD = "dpf-global.held"


class DpfGlobal(Masking):
    """The largest weights of a model that the cloud keeps whole."""

    name = "dpf-global"
    summary = "dynamic pruning with feedback at the cloud: devices hold its largest weights that fit"
    source = "after Lin et al.; the federated form is own"
    by_data: ClassVar[bool] = False

    sparsity: Ratio = Field(default=0.0, description="final sparsity, where the deadline needs less")
    until: Count = Field(default=25, description="edge rounds until it is reached")

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The most weights that a device held in the last round; 0 before the first."""
        return (count_slot(HELD),)

    def prepare(self, view: RoundView, values: Values) -> tuple[Array, Values]:
        """|w| at the cloud."""
        most = self.counts(view, None).max(initial=0)
        held = {HELD: np.array([most])} if most else {}
        return np.abs(view.model[view.shape.prunable]), values | held

    def counts(self, view: RoundView, shared: Array | None) -> Array:
        return scheduled(view, self.sparsity, self.until)

    def choose(self, view: DeviceView) -> SubModel:
        if view.keep >= view.shape.prunable_weights:
            return WHOLE
        assert view.shared is not None
        mask = choose_mask(view.shared, keep=view.keep, layers=view.shape.layers)
        return SubModel(sent=mask, held=mask, moves=mask)

    def evaluated(self, shape: ModelShape, model: Array, values: Values) -> Array:
        """Returns the model with the largest weights alone."""
        most, sizes = int(values[HELD][0]), np.abs(model[shape.prunable])
        if most == 0 or most >= sizes.size:
            return model
        used = model.copy()
        used[shape.prunable] *= choose_mask(sizes, keep=most, layers=shape.layers)
        return used
