"""The claims of the methods' sources, one file per family. To add a claim, add it to its family's list.

scenes       the settings under which they are judged
averaging    FedAvg, HierFAVG, H-SGD, mobility, FedProx, SCAFFOLD, FedAdam
pruning      the paper's relatives: masks, shares, selection, schedules of pruning
sub_models   dropout, widths, partial training, small models
uploading    compressed updates
systems      association, energy, links, topologies, unreliable devices
"""

from __future__ import annotations

from airprune.studies.league.claims import LeagueClaim
from airprune.studies.league.sources import averaging, pruning, sub_models, systems, uploading

CLAIMS: tuple[LeagueClaim, ...] = (
    *averaging.CLAIMS,
    *pruning.CLAIMS,
    *sub_models.CLAIMS,
    *uploading.CLAIMS,
    *systems.CLAIMS,
)
