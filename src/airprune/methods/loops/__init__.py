"""Training loops of a device, one file each: everything between the received model and the trained one.

To add one, write its file and list it here; `base` has the class to derive from, and `Loop.of` makes one of a function.
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.loops.base import Loop, TrainingContext

MINIBATCH_STEPS = "steps"
LOOPS: Registry[type[Loop]] = Registry(
    "loops",
    {
        MINIBATCH_STEPS: "airprune.methods.loops.steps:Steps",
        "distilled": "airprune.methods.loops.distilled:Distilled",
    },
)

__all__ = ["LOOPS", "MINIBATCH_STEPS", "Loop", "TrainingContext"]
