"""FedPLT: layers are cut into equal sub-layers; a device trains and sends as many as it can, always the same ones.

Sub-layers are assigned round robin when a device first takes part, so each has equally many holders, give or take one.
A device never gets more than it could send then; in a round with less time it sends the first of its own. Weights that
the cut leaves over, fewer per layer than there are sub-layers, are trained by all devices.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot
from airprune.components.layers import PrunableLayers
from airprune.methods.masking.base import WHOLE, Array, DeviceView, Masking, RoundView, SubModel, Values
from airprune.settings.section import Count

ASSIGNED = "fedplt.dealt"


def cut(layers: PrunableLayers, parts: int) -> tuple[list[Array], Array]:
    """(the weights of each sub-layer, those left over), as places in the flat vector."""
    whole = [layer.start + np.arange(layer.num_weights // parts * parts).reshape(parts, -1) for layer in layers]
    rest = [np.arange(layer.span.start, layer.span.stop)[layer.num_weights // parts * parts :] for layer in layers]
    return list(np.concatenate(whole, axis=1)), np.concatenate(rest)


class FedPlt(Masking):
    """Training of sub-layers of its own on each device."""

    name = "fedplt"
    summary = "partial layer training: each device trains its own fixed sub-layers, the rest frozen"
    source = "after FedPLT (Dabaja, El-Azouzi)"
    dense_compute = 2 / 3  # forward pass and input gradients; weight gradients only for what moves
    by_data: ClassVar[bool] = False

    sub_layers: Count = Field(default=8, description="equal parts of each layer; one of each is a sub-layer")

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The first sub-layer of each device and their number, -1 until it has taken part."""
        return (
            Slot(name=ASSIGNED, owner=Owner.RUN, shape=lambda shape: (2, shape.num_devices), dtype="<i8", start=-1.0),
        )

    def num_kept(self, budget: Array, shape: ModelShape) -> Array:
        """Returns the weights of whole sub-layers and those that the cut leaves over."""
        pieces, rest = cut(shape.layers, self.sub_layers)
        size = max(pieces[0].size, 1)
        return np.where(budget < rest.size, budget, rest.size + (budget - rest.size) // size * size)

    def prepare(self, view: RoundView, values: Values) -> tuple[Array | None, Values]:
        """Assigns sub-layers to devices that take part for the first time, each from where the one before left off."""
        assigned = values[ASSIGNED].copy()
        pieces, rest = cut(view.shape.layers, self.sub_layers)
        for device, keep in zip(view.device.tolist(), view.keep.tolist(), strict=True):
            if assigned[1, device] < 0:
                number = max(keep - rest.size, 0) // max(pieces[0].size, 1)
                assigned[:, device] = assigned[1][assigned[1] > 0].sum() % self.sub_layers, number
        return assigned, {**values, ASSIGNED: assigned}

    def counts(self, view: RoundView, shared: Array | None) -> Array:
        assert shared is not None
        pieces, rest = cut(view.shape.layers, self.sub_layers)
        return np.minimum(view.keep, rest.size + shared[1, view.device] * pieces[0].size)

    def choose(self, view: DeviceView) -> SubModel:
        """Chooses the weights left over, then the device's own sub-layers in their order, as far as they fit."""
        if view.keep >= view.shape.prunable_weights:
            return WHOLE
        assert view.shared is not None
        pieces, rest = cut(view.shape.layers, self.sub_layers)
        order = np.roll(np.arange(self.sub_layers), -view.shared[0, view.device])
        mask = np.zeros(view.shape.prunable_weights, dtype=bool)
        mask[np.concatenate([rest, *(pieces[place] for place in order.tolist())])[: view.keep]] = True
        return SubModel(sent=mask, moves=mask)
