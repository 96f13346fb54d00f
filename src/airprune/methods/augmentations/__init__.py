"""Augmentations of the samples of a minibatch, one file each.

To add one, write its file and list it here; `base` has the class to derive from.
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.augmentations.base import Augmentation

AUGMENTATIONS: Registry[type[Augmentation]] = Registry(
    "augmentations",
    {
        "none": "airprune.methods.augmentations.none:Unchanged",
        "images": "airprune.methods.augmentations.images:Images",
    },
)

__all__ = ["AUGMENTATIONS", "Augmentation"]
