"""Schedules of the learning rate, one file each: a factor that follows rounds or local steps.

To add one, write its file and list it here; `base` has the class to derive from.
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.schedules.base import Schedule

SCHEDULES: Registry[type[Schedule]] = Registry(
    "schedules",
    {
        "constant": "airprune.methods.schedules.constant:Constant",
        "step": "airprune.methods.schedules.step:StepDecay",
        "cosine": "airprune.methods.schedules.cosine:Cosine",
        "warm-up": "airprune.methods.schedules.warm_up:WarmUp",
    },
)

__all__ = ["SCHEDULES", "Schedule"]
