"""Who averages where and when: devices near each other, LANs, edges in the cloud's place, tiers of devices."""

from __future__ import annotations

from airprune.methods.recipe import Recipe
from airprune.methods.recipes import uploading

_HIERFAVG = {
    "plan.scheme": "no-pruning",
    "aggregation.edge": "data-weighted",
    "aggregation.cloud": "data-weighted",
}

FOGFL = Recipe(
    name="fogfl",
    summary="HierFAVG without a cloud: an edge chosen by latency and workload averages for all",
    source="Saha, Misra, Deb: FogFL: Fog-assisted federated learning for resource-constrained IoT devices",
    label="as published (choice of the node; its constants are ours)",
    settings={**_HIERFAVG, "topology.name": "fog"},
    claim="less delay than averaging at a cloud behind a slower link",
)

LANFL = Recipe(
    name="lanfl",
    summary="devices of a LAN average in a ring; one of each LAN uploads to the cloud",
    source="Yuan et al.: Hierarchical federated learning through LAN-WAN orchestration",
    label="after Yuan et al.",
    settings={**_HIERFAVG, "topology.name": "lan"},
    claim="18 to 76 times less WAN traffic than uploading every round, at the same accuracy",
)

D2D_FEDAVG = Recipe(
    name="d2d-fedavg",
    summary="HierFAVG in which near devices upload one model through a master",
    source="Zhang X., Liu Y., Liu J., Argyriou, Han: D2D-assisted federated learning in mobile edge computing networks",
    label="after Zhang et al.",
    settings={**_HIERFAVG, "topology.name": "d2d"},
    claim="less uplink traffic at the same accuracy, the more so the more devices a cell has",
)

D2D_SIGN = Recipe(
    name="d2d-sign",
    summary="near devices send signs of one gradient to a master, masters their group's vote to the edge, which votes",
    source="device-to-device groups after Zhang et al., sign-SGD with majority vote after Bernstein et al.",
    label="our reading: D2D grouping with sign-SGD",
    settings={**uploading.HIER_SIGN.settings, "aggregation.edge": "group-vote", "topology.name": "d2d"},
    claim="far fewer bits than D2D-FedAvg at about its accuracy",
)

TT_PRUNE = Recipe(
    name="tt-prune",
    summary="adaptive pruning in tiers: the edge averages several times per deadline, slower devices deliver rarely",
    source="Zhang, Deng, Mahmoodi: TT-Prune: Joint model pruning and resource allocation for communication-efficient "
    "time-triggered federated learning",
    label="after Zhang et al.",
    settings={
        "plan.scheme": "optimal",
        "aggregation.edge": "data-weighted",
        "aggregation.cloud": "data-weighted",
        "topology.name": "tiers",
    },
    claim="pruning lowers the bits to an accuracy by 40 %, against the same tiers without pruning",
)
