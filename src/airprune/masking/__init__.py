"""Which sub-model a device holds, trains and sends. To add a member, write its file and list it here.

base         what a masking is, what it sees, what it answers
probe        the paper's: Eq. (2) on one minibatch of the dense model, the rest zeroed
frozen       the same choice, the rest kept at its received value instead of zeroed
shared       one mask for all devices, chosen again every few rounds
averaged     as probe, with scores that devices average over their rounds
fedpt        partial training: one random part of the weights, for the whole run
fedpart      … one layer at a time
fedplt       … sub-layers of its own for each device
common       what maskings share that keep one mask for all
iterative    pruned for good in many small steps
early        … at once, when the choice has settled
snip         … after one dense round, by |w · gradient|
prunefl      reconfigured every few rounds, for the most squared gradient per second
feddst       devices swap small weights for promising ones
dpf          the forward pass uses the largest weights, steps move all
dpf_global   … chosen and remembered by the cloud
widths       what the following, which leave out whole units, have in common
feddrop      units drawn anew in every round
heterofl     the leading units, at one of a few widths
fjord        the same, every minibatch at a width of its own
fjord_kd     … and what all of it predicts teaches that width
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
        "averaged": "airprune.masking.averaged:MASKING",
        "fedpt": "airprune.masking.fedpt:MASKING",
        "fedpart": "airprune.masking.fedpart:MASKING",
        "fedplt": "airprune.masking.fedplt:MASKING",
        "iterative": "airprune.masking.iterative:MASKING",
        "early": "airprune.masking.early:MASKING",
        "snip": "airprune.masking.snip:MASKING",
        "prunefl": "airprune.masking.prunefl:MASKING",
        "feddst": "airprune.masking.feddst:MASKING",
        "dpf": "airprune.masking.dpf:MASKING",
        "dpf-global": "airprune.masking.dpf_global:MASKING",
        "feddrop": "airprune.masking.feddrop:MASKING",
        "heterofl": "airprune.masking.heterofl:MASKING",
        "fjord": "airprune.masking.fjord:MASKING",
        "fjord-kd": "airprune.masking.fjord_kd:MASKING",
        "afd": "airprune.masking.afd:MASKING",
        "small-model": "airprune.masking.small_model:MASKING",
    },
)

__all__ = ["MASKINGS", "Masking"]
