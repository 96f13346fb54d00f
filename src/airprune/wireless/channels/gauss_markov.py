"""Fading that changes slowly from one edge round to the next: an autoregressive process of first order."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.checks import FloatArray
from airprune.components.component import ModelShape, Owner, Slot, Values
from airprune.settings.section import Ratio
from airprune.wireless.channel import amplitudes, diffuse_parts
from airprune.wireless.channels.base import FadingView
from airprune.wireless.channels.block_fading import BlockFading

_DIFFUSE = "gauss-markov.diffuse"


class GaussMarkov(BlockFading):
    """Keeps a part of each device's fading from one edge round to the next.

    x_0 = w_0 and x_t = c x_(t-1) + sqrt(1 - c^2) w_t for the scattered part of every antenna, with w_t the numbers of
    `block-fading`, CN(0, 1): so is every x_t, and the correlation of x_t and x_(t+k) is c^k.
    """

    name = "gauss-markov"
    summary = "as block-fading, with fading that is correlated from one edge round to the next"
    source = "Tan, Beaulieu: On first-order Markov modeling for the Rayleigh fading channel (IEEE Trans. Commun. 2000)"

    correlation: Ratio = Field(
        default=0.9,
        description="correlation c of a device's fading in consecutive edge rounds; J0(2 pi f_D tau) in Clarke's "
        "model, with the Doppler frequency f_D and the time tau between rounds",
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The scattered part of every antenna, as `diffuse_parts` has it."""
        return (Slot(name=_DIFFUSE, owner=Owner.RUN, shape=_parts, dtype="<f8"),)

    def small_scale(self, view: FadingView, values: Values) -> tuple[FloatArray, Values]:
        radio = view.radio
        if radio.fading == "none":
            return super().small_scale(view, values)
        diffuse = diffuse_parts(view.num_devices, radio, view.rng("fading"))
        if view.block is None and view.round_index > 0:
            kept = self.correlation
            diffuse = kept * values[_DIFFUSE] + np.sqrt(1.0 - kept**2) * diffuse
        return np.sum(amplitudes(diffuse, radio) ** 2, axis=(1, 2)), {_DIFFUSE: diffuse}

    def diffuse(self, view: FadingView, values: Values) -> FloatArray:
        return values[_DIFFUSE]


def _parts(shape: ModelShape) -> tuple[int, ...]:
    return shape.num_devices, shape.num_antennas, 2
