"""Fading of moving devices by Clarke's model: the correlation over time is that of their speed."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.checks import FloatArray
from airprune.components.component import Values
from airprune.randomness import rng_for
from airprune.settings.section import Count
from airprune.wireless.channel import amplitudes
from airprune.wireless.channels.base import FadingView
from airprune.wireless.channels.block_fading import BlockFading


class Clarke(BlockFading):
    """Sums waves from all directions, each with the Doppler shift of its angle.

    x(t) = sum_i a_i exp(j 2 pi f_D cos(alpha_i) t) for every antenna, with a_i ~ CN(0, 1/paths) and uniform angles,
    both fixed for a run: CN(0, 1) at every time, and E[x(t) x*(t + tau)] = J0(2 pi f_D tau), with the Doppler
    frequency f_D = speed · carrier / c. A function of time alone, without memory.
    """

    name = "clarke"
    summary = "as block-fading, with fading that changes in time as at the devices' speed (Clarke, Jakes)"
    source = "Clarke: A statistical theory of mobile-radio reception (Bell Syst. Tech. J. 1968)"

    paths: Count = Field(default=32, description="waves that are summed")

    def small_scale(self, view: FadingView, values: Values) -> tuple[FloatArray, Values]:
        if view.radio.fading == "none":
            return super().small_scale(view, values)
        return np.sum(amplitudes(self.diffuse(view, values), view.radio) ** 2, axis=(1, 2)), {}

    def diffuse(self, view: FadingView, values: Values) -> FloatArray:
        shape = view.num_devices, view.radio.num_antennas
        sums = np.zeros(shape, dtype=np.complex128)
        turn = 2.0 * np.pi * view.radio.doppler_hz * view.time_s
        for path in range(self.paths):
            rng = rng_for(view.seed, "clarke", path, *(() if view.block is None else (view.block,)))
            draws = rng.standard_normal((*shape, 4))  # device by device, as `diffuse_parts`
            angle = np.arctan2(draws[..., 0], draws[..., 1])
            sums += (draws[..., 2] + 1j * draws[..., 3]) * np.exp(1j * turn * np.cos(angle))
        return np.stack([sums.real, sums.imag], axis=2) / np.sqrt(self.paths)
