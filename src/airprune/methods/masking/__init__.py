"""Maskings, one file each: sub-models that devices hold, train and send. To add one, write its file and list it here.

base     the class to derive from, and the values it sees and returns
core     importances and masks
ranking  shared by maskings that rank weights or units by an importance
common   shared by maskings that keep one mask for all devices
widths   shared by maskings that leave out whole units
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.masking.base import Masking

MASKINGS: Registry[type[Masking]] = Registry(
    "masking",
    {
        "probe": "airprune.methods.masking.probe:Probe",
        "frozen": "airprune.methods.masking.frozen:Frozen",
        "whole": "airprune.methods.masking.whole:Whole",
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
        "magnitude-rechosen": "airprune.methods.masking.magnitude_rechosen:MagnitudeRechosen",
        "feddrop": "airprune.methods.masking.feddrop:FedDrop",
        "heterofl": "airprune.methods.masking.heterofl:HeteroFl",
        "fedrolex": "airprune.methods.masking.fedrolex:FedRolex",
        "fjord": "airprune.methods.masking.fjord:Fjord",
        "fjord-kd": "airprune.methods.masking.fjord_kd:FjordKd",
        "afd": "airprune.methods.masking.afd:Afd",
        "small-model": "airprune.methods.masking.small_model:SmallModel",
        "ranks": "airprune.methods.masking.ranks:Ranks",
        "halves": "airprune.methods.masking.halves:Halves",
    },
)
