"""The base class of channels: the gains of links, their fading in an edge round, and the rates that follow.

    links ─► large_scale   gain, fixed for a run
    round ─► small_scale   fading of the round, new in each
    SNR = gain · fading · p / sigma^2 ─► rate_bps   r_n, over the whole bandwidth

A channel belongs to the environment: it sees neither the method nor its plans, so all methods meet the same links and
the same fading. Its random numbers come from the streams of what it sees, addressed by seed and round.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from airprune.checks import FloatArray, quantity
from airprune.components.component import Array, Component, Values
from airprune.errors import InvalidValue
from airprune.randomness import rng_for
from airprune.text import shown
from airprune.wireless.channel import Links, Radio, sent_gain, snr


@dataclass(frozen=True, kw_only=True, eq=False)
class FadingView:
    """One edge round as the fading sees it.

    Attributes:
      num_devices: of the network; a device's fading does not depend on how many follow it.
      round_index: edge rounds since the start of the run.
      time_s: of the run's clock when the round begins.
      seed, block: address of the random numbers; another block of the bandwidth fades independently.
      on_time: probability with which plans are to hold; None: they count on the mean.
    """

    num_devices: int
    radio: Radio
    seed: int
    round_index: int
    time_s: float = 0.0
    block: int | None = None
    on_time: float | None = None

    def rng(self, stream: str) -> np.random.Generator:
        """Returns a random stream of this round."""
        return rng_for(self.seed, stream, self.round_index, *(() if self.block is None else (self.block,)))


class Channel(Component):
    """One channel between devices and stations. To change one part alone, derive from `BlockFading`."""

    @abstractmethod
    def large_scale(self, links: Links) -> FloatArray:
        """Returns the gain of each link, >= 0: fixed for a run.  [num_links]"""

    @abstractmethod
    def small_scale(self, view: FadingView, values: Values) -> tuple[FloatArray, Values]:
        """Returns (the gain of each device's fading in this round, >= 0; the slots as they are from now on).

        A channel with slots is called once for every edge round, in their order. Of a block of the bandwidth, the slots
        are not kept.  [num_devices]
        """

    def known(self, view: FadingView, values: Values) -> FloatArray | None:
        """Returns the fading that plans count on, in place of the true one; None: they know that.

        Args:
          values: with the slots that `small_scale` returned for this round.
        """
        return None

    def antennas(self, view: FadingView, values: Values) -> Array | None:
        """Returns the channel of every device to every antenna, complex, for stations that hear several at once.

        The sum of its squares is the fading of `small_scale`. None: the channel has no such numbers.
        [num_devices, num_antennas]

        Args:
          values: with the slots that `small_scale` returned for this round.
        """
        return None

    @abstractmethod
    def rate_bps(self, snr_ratio: FloatArray, radio: Radio) -> FloatArray:
        """Returns r_n, the rate over the whole bandwidth at this SNR, never falling with it."""


def link_gains(channel: Channel, links: Links) -> FloatArray:
    """Returns `large_scale` of these links, or raises InvalidValue if it is not one gain for each."""
    return _one_each(channel, "large_scale", channel.large_scale(links), np.shape(links.distance_m))


def round_fading(channel: Channel, view: FadingView, values: Values) -> tuple[FloatArray, Values]:
    """Returns `small_scale` of this round, or raises InvalidValue if it is not one gain for each device, and slots."""
    found = channel.small_scale(view, values)
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Mapping):
        rule = "must return (the gain of each device, its slots)"
        raise InvalidValue(_method(channel, "small_scale"), rule, shown(found), "Example: return gain, {}")
    return _one_each(channel, "small_scale", found[0], (view.num_devices,)), found[1]


def known_fading(channel: Channel, view: FadingView, values: Values) -> FloatArray | None:
    """Returns `known` of this round, or raises InvalidValue if it is neither None nor one gain for each device."""
    found = channel.known(view, values)
    return None if found is None else _one_each(channel, "known", found, (view.num_devices,))


def rates_at_snr_bps(channel: Channel, snr_ratio: FloatArray, radio: Radio) -> FloatArray:
    """Returns `rate_bps` at these SNRs, or raises InvalidValue if it is not one rate for each."""
    return _one_each(channel, "rate_bps", channel.rate_bps(snr_ratio, radio), np.shape(snr_ratio))


def _one_each(channel: Channel, method: str, found: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    array = quantity(_method(channel, method), found, at_least=0.0)
    if array.shape != shape:
        rule, got = f"must return an array of shape {shape}", f"one of shape {array.shape}"
        raise InvalidValue(_method(channel, method), rule, got)
    return array


def _method(channel: Channel, name: str) -> str:
    return f"Channel {channel.name!r}, {name}"


def block_gains(channel: Channel, view: FadingView, num_blocks: int, values: Values | None = None) -> FloatArray:
    """The fading of every device in every block of the bandwidth, independent of each other.

    [num_devices, num_blocks]; the first blocks do not depend on how many follow.
    """
    blocks = (replace(view, block=block) for block in range(1, num_blocks + 1))
    return np.stack([round_fading(channel, block, values or {})[0] for block in blocks], axis=1)


def link_rates_bps(channel: Channel, gain: FloatArray, fading: FloatArray | float, radio: Radio) -> FloatArray:
    """r_n of links with these large-scale gains and this fading, at the power that devices send with."""
    return rates_at_snr_bps(channel, snr(sent_gain(gain, radio) * fading, radio), radio)
