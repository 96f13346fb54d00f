"""Who is asked, who gets which band, who moves."""

from __future__ import annotations

from airprune.methods.base import Recipe

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
