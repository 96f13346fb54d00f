"""Which sub-model a device holds, trains and sends. To add a member, write its file and list it here.

base         what a masking is, what it sees, what it answers
probe        the paper's: Eq. (2) on one minibatch of the dense model, the rest zeroed
frozen       the same choice, the rest kept at its received value instead of zeroed
shared       one mask for all devices, chosen again every few rounds
widths       what the following, which leave out whole units, have in common
feddrop      units drawn anew in every round
heterofl     the leading units, at one of a few widths
fjord        the same, every minibatch at a width of its own
afd          units drawn by a score map
small_model  one width for all devices and rounds
"""

from __future__ import annotations

from airprune.masking.base import Masking
from airprune.registry import Registry

MASKINGS: Registry[Masking] = Registry(
    "masking",
    {
        "probe": "airprune.masking.probe:MASKING",
        "frozen": "airprune.masking.frozen:MASKING",
        "shared": "airprune.masking.shared:MASKING",
        "feddrop": "airprune.masking.feddrop:MASKING",
        "heterofl": "airprune.masking.heterofl:MASKING",
        "fjord": "airprune.masking.fjord:MASKING",
        "afd": "airprune.masking.afd:MASKING",
        "small-model": "airprune.masking.small_model:MASKING",
    },
)

__all__ = ["MASKINGS", "Masking"]
