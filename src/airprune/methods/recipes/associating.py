"""Who is served by which edge. None of these prunes but the one that says so: a tight deadline makes them late."""

from __future__ import annotations

from airprune.methods.recipe import Recipe

_BY_DATA = {"aggregation.edge": "data-weighted", "aggregation.cloud": "data-weighted"}  # an empty edge has no say

HFEL = Recipe(
    name="hfel",
    summary="clocks and shares at the least energy and delay, and devices moved between edges while that lowers it",
    source="Luo, Chen, Wu, Zhou, Yu: HFEL: joint edge association and resource allocation",
    label="after Luo et al.",
    settings={**_BY_DATA, "plan.scheme": "hfel", "association.name": "hfel"},
    claim="lower cost than random and nearest association, and better accuracy per joule than flat learning",
)

HFEL_PRUNING = Recipe(
    name="hfel-pruning",
    summary="the paper's plan, and devices moved between edges while that lowers what all of them prune",
    source="HFEL's association with the paper's objective",
    settings={
        **_BY_DATA,
        "plan.scheme": "optimal",
        "association.name": "hfel",
        "association.hfel.energy_weight": 0.0,
        "association.hfel.time_weight": 0.0,
        "association.hfel.pruning_weight": 1.0,
    },
    claim="less pruning than with the best channel for everybody",
)

INA = Recipe(
    name="ina",
    summary="whole models, and the edges that have all of them soonest",
    source="Dinh et al.: large-scale federated learning with in-network aggregation (arXiv:2109.10903)",
    label="after Dinh et al.",
    settings={**_BY_DATA, "plan.scheme": "min-max-time", "association.name": "ina"},
    claim="several times faster than one server for everybody",
)

REPLICATOR = Recipe(
    name="replicator",
    summary="HierFAVG whose edges grow with what they pay their devices",
    source="Lim et al.: Dynamic edge association and resource allocation in self-organizing hierarchical FL (JSAC)",
    label="evolutionary association, static rewards (after Lim et al.)",
    settings={**_BY_DATA, "plan.scheme": "no-pruning", "association.name": "replicator"},
    claim="associations follow the rewards from any start",
)

CONFLICT_GRAPH = Recipe(
    name="conflict-graph",
    summary="devices matched with edges and blocks of their bands at the least energy that meets the deadline",
    source="Al-Abiad, Hassan, Hossain: Energy efficient federated learning in fog-cloud networks (arXiv:2107.03520)",
    label="after Al-Abiad et al., with models pruned where the deadline needs it",
    settings={**_BY_DATA, "plan.scheme": "conflict-graph", "association.name": "conflict-graph"},
    claim="much less energy than full power at the same deadline",
)
