"""FedAvg, HierFAVG and what others have added to them. None of these prunes: a tight deadline makes them late."""

from __future__ import annotations

from airprune.methods.recipe import Recipe

_WHOLE_MODELS = {"plan.scheme": "no-pruning"}
_BY_DATA = {"aggregation.edge": "data-weighted", "aggregation.cloud": "data-weighted"}

HIERFAVG = Recipe(
    name="hierfavg",
    summary="whole models averaged by data at edges and cloud",
    source="Liu, Zhang, Song, Letaief: Client-edge-cloud hierarchical federated learning",
    label="as published",
    settings={**_WHOLE_MODELS, **_BY_DATA},
    claim="for a fixed product of local steps and edge rounds, fewer local steps reach the target in less time",
)

FEDAVG = Recipe(
    name="fedavg",
    summary="whole models averaged by data at one server, a share of the devices per round",
    source="McMahan et al.: Communication-efficient learning of deep networks from decentralized data",
    label="as published",
    settings={
        **_WHOLE_MODELS,
        **_BY_DATA,
        "topology.name": "flat",
        "selection.name": "random-share",
        "selection.random-share.share": 1.0,
    },
    claim="more local work needs fewer rounds to a target",
)

H_SGD = Recipe(
    name="h-sgd",
    summary="local SGD averaged on a tree of three levels",
    source="Wang, Wang, Chen, Ji: Demystifying why local aggregation helps",
    label="as published",
    settings={**_WHOLE_MODELS, "topology.name": "tree", "topology.tree.nodes": [2], "topology.tree.rounds": [1]},
    claim="accuracy lies between local SGD with the periods of the lowest and of the highest level",
)

FEDPROX = Recipe(
    name="fedprox",
    summary="HierFAVG with a pull to the received model on the devices",
    source="Li et al.: Federated optimization in heterogeneous networks",
    label="as published",
    settings={**_WHOLE_MODELS, **_BY_DATA, "objective.name": "prox"},
)

SCAFFOLD = Recipe(
    name="scaffold",
    summary="uniform averages of devices corrected by control variates, sent with the update; without momentum",
    source="Karimireddy et al.: SCAFFOLD: stochastic controlled averaging for federated learning",
    label="as published, option II; on a tree our reading",
    settings={**_WHOLE_MODELS, "objective.name": "scaffold", "train.optimizer": "sgd", "train.momentum": 0.0},
    claim="on unlike data no worse than FedAvg after as many rounds, at twice the bits",
)

FEDAVGM = Recipe(
    name="fedavgm",
    summary="HierFAVG with momentum at the cloud",
    source="Hsu, Qi, Brown: Measuring the effects of non-identical data distribution",
    label="as published",
    settings={**_WHOLE_MODELS, **_BY_DATA, "aggregation.cloud_step": "momentum"},
)

FEDADAM = Recipe(
    name="fedadam",
    summary="HierFAVG with Adam at the cloud",
    source="Reddi et al.: Adaptive federated optimization",
    label="as published",
    settings={**_WHOLE_MODELS, **_BY_DATA, "aggregation.cloud_step": "adam"},
    claim="faster in the first rounds",
)
