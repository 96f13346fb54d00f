"""Which sub-model a device holds, trains and sends. To add a member, write its file and list it here.

base         what a masking is, what it sees, what it answers
ranking      what the following, which rank single weights or units, have in common
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

from airprune.components.registry import Registry
from airprune.methods.masking.base import Masking

MASKINGS: Registry[type[Masking]] = Registry(
    "masking",
    {
        "probe": "airprune.methods.masking.probe:Probe",
        "frozen": "airprune.methods.masking.frozen:Frozen",
        "shared": "airprune.methods.masking.shared:Shared",
        "averaged": "airprune.methods.masking.averaged:Averaged",
        "fedpt": "airprune.methods.masking.fedpt:FedPt",
        "fedpart": "airprune.methods.masking.fedpart:FedPart",
        "fedplt": "airprune.methods.masking.fedplt:FedPlt",
        "iterative": "airprune.methods.masking.iterative:Iterative",
        "early": "airprune.methods.masking.early:Early",
        "snip": "airprune.methods.masking.snip:Snip",
        "prunefl": "airprune.methods.masking.prunefl:PruneFl",
        "feddst": "airprune.methods.masking.feddst:FedDst",
        "dpf": "airprune.methods.masking.dpf:Dpf",
        "dpf-global": "airprune.methods.masking.dpf_global:DpfGlobal",
        "feddrop": "airprune.methods.masking.feddrop:FedDrop",
        "heterofl": "airprune.methods.masking.heterofl:HeteroFl",
        "fjord": "airprune.methods.masking.fjord:Fjord",
        "fjord-kd": "airprune.methods.masking.fjord_kd:FjordKd",
        "afd": "airprune.methods.masking.afd:Afd",
        "small-model": "airprune.methods.masking.small_model:SmallModel",
    },
)

__all__ = ["MASKINGS", "Masking"]
