"""Who is asked before planning, who is dropped after it. To add a member, write its file and list it here.

base          what a selection is and what it sees
everyone      all devices: the paper's
random_share  a random share of each edge's devices
best_channel  the share of each edge's devices with the best channels
ratio_cap     all, then without those whose models would be pruned too much
"""

from __future__ import annotations

from airprune.registry import Registry
from airprune.selection.base import Selection

SELECTIONS: Registry[Selection] = Registry(
    "selection",
    {
        "everyone": "airprune.selection.everyone:SELECTION",
        "random-share": "airprune.selection.random_share:SELECTION",
        "best-channel": "airprune.selection.best_channel:SELECTION",
        "ratio-cap": "airprune.selection.ratio_cap:SELECTION",
    },
)

__all__ = ["SELECTIONS", "Selection"]
