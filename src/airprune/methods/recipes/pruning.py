"""The paper's method and its relatives."""

from __future__ import annotations

from airprune.methods.recipe import Recipe

ADAPTIVE_PRUNING = Recipe(
    name="adaptive-pruning",
    summary="the paper's: joint plan of bandwidth and pruning, Eq. (2) masks, the rest zeroed",
    source="Liu, Wang, Deng, Nallanathan: Adaptive Federated Pruning in Hierarchical Wireless Networks",
    label="as published, corrected",
    settings={
        "plan.scheme": "optimal",
        "masking.name": "probe",
        "aggregation.edge": "masked-mean",
        "aggregation.cloud": "masked-mean",
    },
    claim="about as accurate as no pruning at about half the time and uploads",
)

FROZEN_PRUNING = Recipe(
    name="frozen-pruning",
    summary="the paper's plan and masks; what does not fit keeps its received value instead of becoming zero",
    source="partial training: FedPT, FedPart, FedPLT",
    settings={"plan.scheme": "optimal", "masking.name": "frozen", "aggregation.edge": "predicted"},
    claim="about as accurate as no pruning at the paper's time and uploads",
)

JAPP = Recipe(
    name="japp",
    summary="the paper's plan and masks on all but the last layer, which stays on each device as its own",
    source="Liu, Ratnarajah, Sellathurai, Eldar: Adaptive model pruning and personalization for federated learning",
    label="after Liu et al. 2024",
    settings={"plan.scheme": "optimal", "masking.name": "probe", "model.personal": ["last"]},
    claim="about as accurate as personal layers without pruning, at about half the time",
)

SHARED_PRUNING = Recipe(
    name="shared-pruning",
    summary="one mask for all devices from their summed scores, chosen again every few rounds",
    settings={"plan.scheme": "min-max", "masking.name": "shared"},
)
