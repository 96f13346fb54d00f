"""Client selections, one file each: devices selected before planning or dropped after it.

To add one, write its file and list it here; `base` has the class to derive from.
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
