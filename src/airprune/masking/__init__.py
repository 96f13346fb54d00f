"""Which sub-model a device holds, trains and sends. To add a member, write its file and list it here.

base    what a masking is, what it sees, what it answers
probe   the paper's: Eq. (2) on one minibatch of the dense model, the rest zeroed
frozen  the same choice, the rest kept at its received value instead of zeroed
shared  one mask for all devices, chosen again every few rounds
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
    },
)

__all__ = ["MASKINGS", "Masking"]
