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

from airprune.components.registry import Registry
from airprune.methods.selection.base import Selection

SELECTIONS: Registry[type[Selection]] = Registry(
    "selection",
    {
        "everyone": "airprune.methods.selection.everyone:Everyone",
        "random-share": "airprune.methods.selection.random_share:RandomShare",
        "best-channel": "airprune.methods.selection.best_channel:BestChannel",
        "proportional-fair": "airprune.methods.selection.proportional_fair:ProportionalFair",
        "oort": "airprune.methods.selection.oort:Oort",
        "slack": "airprune.methods.selection.slack:Slack",
        "ratio-cap": "airprune.methods.selection.ratio_cap:RatioCap",
    },
)

__all__ = ["SELECTIONS", "Selection"]
