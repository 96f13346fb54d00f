"""The radio of the paper's Eq. (10) and its options: path loss, shadowing, fading that is new in each edge round."""

from __future__ import annotations

from airprune.checks import FloatArray
from airprune.components.component import Array, Values
from airprune.randomness import rng_for
from airprune.wireless.channel import Links, Radio, diffuse_parts, link_gain, rate_at_snr_bps, small_scale_gain
from airprune.wireless.channels.base import Channel, FadingView
from airprune.wireless.csi import planned_gain
from airprune.wireless.mimo import antenna_vectors


class BlockFading(Channel):
    """Samples fading independently in every edge round."""

    name = "block-fading"
    summary = "path loss, shadowing, and fading that is independent in every edge round"
    source = "Eq. (10); path loss of 3GPP TR 38.901"

    def large_scale(self, links: Links) -> FloatArray:
        return link_gain(links)

    def small_scale(self, view: FadingView, values: Values) -> tuple[FloatArray, Values]:
        key = () if view.block is None else (view.block,)
        gain = small_scale_gain(view.num_devices, view.radio, seed=view.seed, round_index=view.round_index, key=key)
        return gain, {}

    def known(self, view: FadingView, values: Values) -> FloatArray | None:
        if view.radio.knows_fading:
            return None
        return planned_gain(self.diffuse(view, values), view.radio, view.rng("csi"), view.on_time)

    def antennas(self, view: FadingView, values: Values) -> Array | None:
        return antenna_vectors(self.diffuse(view, values), view.radio, rng_for(view.seed, "direction"))

    def diffuse(self, view: FadingView, values: Values) -> FloatArray:
        """Returns the scattered parts of this round, once `small_scale` was called for it.  [num_devices, M, 2]"""
        return diffuse_parts(view.num_devices, view.radio, view.rng("fading"))

    def rate_bps(self, snr_ratio: FloatArray, radio: Radio) -> FloatArray:
        return rate_at_snr_bps(snr_ratio, radio)
