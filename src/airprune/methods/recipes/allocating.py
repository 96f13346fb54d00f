"""Who is asked, who gets which band, who moves."""

from __future__ import annotations

from airprune.methods.recipe import Recipe

RANDOM = Recipe(
    name="random",
    summary="the paper's method on a random half of each edge's devices per round",
    source="client sampling of FedAvg",
    label="as published",
    settings={"selection.name": "random-share", "selection.random-share.share": 0.5},
)

BEST_CHANNEL = Recipe(
    name="best-channel",
    summary="the paper's method on the half of each edge's devices with the best channels",
    settings={"selection.name": "best-channel", "selection.best-channel.share": 0.5},
)

PROPORTIONAL_FAIR = Recipe(
    name="proportional-fair",
    summary="the paper's method on the half of each edge's devices with channels best compared with their usual ones",
    source="Yang, Liu, Quek, Poor: Scheduling policies for federated learning in wireless networks",
    label="after Yang et al.",
    settings={"selection.name": "proportional-fair", "selection.proportional-fair.share": 0.5},
    claim="learns from all devices alike, where the best channels alone leave some out",
)

OORT = Recipe(
    name="oort",
    summary="the paper's method on half of each edge's devices: large losses, short rounds, some never tried",
    source="Lai, Zhu, Madhyastha, Chowdhury: Oort: efficient federated learning via guided participant selection",
    label="after Lai et al., scores of the authors' code",
    settings={"selection.name": "oort", "selection.oort.share": 0.5},
    claim="reaches a target in less time than a random choice of as many devices",
)

HYBRIDFL = Recipe(
    name="hybridfl",
    summary="whole models; edges ask more where devices fail, and the round ends when enough have answered",
    source="Wu, He, Lin, Mao: Accelerating federated learning over reliability-agnostic clients",
    label="after Wu et al.",
    settings={
        "plan.scheme": "no-pruning",
        "selection.name": "slack",
        "selection.slack.share": 0.3,
        "aggregation.edge": "cached",
        "aggregation.cloud": "heard-weighted",
        "rounds.edge_rounds": 1,
    },
    claim="shorter rounds and less energy than HierFAVG where devices drop out; no difference where none does",
)

LIU2022 = Recipe(
    name="liu2022",
    summary="joint pruning and device selection on one band: devices that would be pruned too much are dropped",
    source="Liu, Yu, Yin, Yuan, Shen, Liu: Joint model pruning and device selection (TCOM 2022)",
    label="after Liu et al. 2022",
    settings={"topology.name": "flat", "plan.scheme": "optimal", "selection.name": "ratio-cap"},
    claim="selection beats pruning everybody under a tight deadline with unequal CPUs",
)

LIU2022_HIER = Recipe(
    name="liu2022-hier",
    summary="the same selection on the band of every edge",
    source="Liu, Yu, Yin, Yuan, Shen, Liu: Joint model pruning and device selection (TCOM 2022)",
    label="after Liu et al. 2022, per edge",
    settings={"plan.scheme": "optimal", "selection.name": "ratio-cap"},
    claim="hierarchical selection beats the flat one",
)

VARIANCE = Recipe(
    name="variance",
    summary="shares and ratios that minimise the variance that dropout adds, instead of the sum of ratios",
    source="Xie et al.: Federated dropout: convergence analysis and resource allocation",
    label="after Xie et al.",
    settings={"plan.scheme": "variance"},
)

MOBILITY = Recipe(
    name="mobility",
    summary="HierFAVG while devices move from edge to edge",
    source="Feng et al.: Mobility-aware cluster federated learning",
    label="after Feng et al.",
    settings={
        "plan.scheme": "no-pruning",
        "aggregation.edge": "data-weighted",
        "aggregation.cloud": "data-weighted",
        "association.name": "handover",
    },
    claim="accuracy falls with mobility if the updates of moving devices are lost",
)

PHFL = Recipe(
    name="phfl",
    summary="pruning, clock and power within a deadline and an energy budget, averaged on a tree of four tiers",
    source="Pervej, Jin, Dai: Hierarchical federated learning in wireless networks: pruning tackles bandwidth scarcity",
    label="after Pervej et al.",
    settings={
        "plan.scheme": "energy",
        "plan.max_energy_j": 0.01,
        "topology.name": "tree",
        "topology.tree.nodes": [2, 2],
        "topology.tree.rounds": [1, 1],
    },
    claim="large energy and time savings at a small loss of accuracy",
)

REN2021 = Recipe(
    name="ren2021",
    summary="blocks of the band, clock and power by their cost in energy, time and pruning",
    source="Ren, Ni, Nie, Tian: resource allocation for efficient federated learning (arXiv:2104.09177)",
    label="after Ren et al.",
    settings={"plan.scheme": "ren2021"},
    claim="lower cost than equal bandwidth and greedy blocks",
)
