"""Who is asked before planning, who is dropped after it. To add a member, write its file and list it here.

base               what a selection is and what it sees
everyone           all devices: the paper's
random_share       a random share of each edge's devices
best_channel       the share of each edge's devices with the best channels
proportional_fair  … with channels best compared with what they usually are
oort               … with large losses and short rounds, and some never tried
slack              more of them the fewer used to answer; the round ends when enough have
ratio_cap          all, then without those whose models would be pruned too much
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
        "proportional-fair": "airprune.selection.proportional_fair:SELECTION",
        "oort": "airprune.selection.oort:SELECTION",
        "slack": "airprune.selection.slack:SELECTION",
        "ratio-cap": "airprune.selection.ratio_cap:SELECTION",
    },
)

__all__ = ["SELECTIONS", "Selection"]
