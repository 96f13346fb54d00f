"""Channels, one file each: path loss, small-scale fading and rates. To add one, write its file and list it here.

base   the class to derive from, and the values it sees
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.wireless.channels.base import Channel

CHANNELS: Registry[type[Channel]] = Registry(
    "channels",
    {
        "block-fading": "airprune.wireless.channels.block_fading:BlockFading",
        "clarke": "airprune.wireless.channels.clarke:Clarke",
        "gauss-markov": "airprune.wireless.channels.gauss_markov:GaussMarkov",
    },
)
