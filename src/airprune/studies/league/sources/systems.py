"""Claims about links, energy, association, topologies and unreliable devices."""

from __future__ import annotations

from collections.abc import Mapping

from airprune.scenario import Scenario
from airprune.studies.league.claims import LeagueClaim, Settings
from airprune.studies.league.judges import cheaper, every, no_worse, spends_less
from airprune.studies.league.sources import scenes
from airprune.studies.league.sources.scenes import method, with_methods

# The source's setting of FogFL: the cloud is behind a link ten times slower than those between edges.
_BETWEEN_EDGES_BPS, _TO_CLOUD_BPS = 1e9, 1e8


def _least_energy(start: Scenario) -> Mapping[str, Settings]:
    """Compares clock and power for the deadline with full ones; neither prunes."""
    full = {"plan.scheme": "equal-resolved", "association.name": "fixed"}
    return {"least energy": {"method": "conflict-graph"}, "full": {"method": "conflict-graph", **full}}


def _tiers(start: Scenario) -> Mapping[str, Settings]:
    return {"tt-prune": {"method": "tt-prune"}, "unpruned": {"method": "tt-prune", "plan.scheme": "no-pruning"}}


def _fog(start: Scenario) -> Mapping[str, Settings]:
    between = {"topology.fog.rate_bps": _BETWEEN_EDGES_BPS, "topology.fog.cloud_bps": _TO_CLOUD_BPS}
    return {
        "fogfl": {"method": "fogfl", **between},
        "hierfavg": {"method": "hierfavg", "topology.hierarchical.backhaul_bps": _TO_CLOUD_BPS},
        "fedavg": method("fedavg", start),
    }


def _quotas(start: Scenario) -> Mapping[str, Settings]:
    """Compares quotas with as many devices sampled; both run one edge round per global round."""
    rounds = {"rounds.edge_rounds": 1}
    sampled = {"selection.name": "random-share", "selection.random-share.share": 0.3}
    return {"hybridfl": {"method": "hybridfl", **rounds}, "sampled": {"method": "hierfavg", **rounds, **sampled}}


CLAIMS: tuple[LeagueClaim, ...] = (
    LeagueClaim(
        name="least-energy-saves-energy",
        where="Al-Abiad, Hassan, Hossain",
        text="Clock and power for the deadline save much energy against full ones.",
        statement="Energy efficient FL in fog-cloud networks: choosing blocks, clock and power for the least energy "
        "saves much of it at the same deadline.",
        baseline="full clock and power at the same deadline, whole models in both",
        assumption="a deadline that whole models meet with time to spare",
        measure="joules of equally many rounds (a model's joules)",
        scene=scenes.LOOSE,
        arms=_least_energy,
        differs=("plan.scheme", "plan.conflict-graph", "association"),
        judge=spends_less("least energy", "full", "energy_j", much=True),
        is_trained=False,
    ),
    LeagueClaim(
        name="phfl-saves-energy",
        where="Pervej, Jin, Dai",
        text="Pruning, clock and power together save energy at a small loss of accuracy.",
        statement="Pruning tackles bandwidth scarcity: pruning, clock and power chosen together save energy and time "
        "at a small loss of accuracy.",
        baseline="hierarchical FL of whole models with full clock and power",
        assumption="deadline and energy budget per round; four tiers",
        measure="joules of equally many rounds; accuracy after them",
        scene=scenes.PAPER,
        arms=with_methods("phfl", "hierfavg"),
        differs=("plan.scheme", "plan.max_energy_j", "topology", "aggregation"),
        judge=every(spends_less("phfl", "hierfavg", "energy_j"), no_worse("phfl", "hierfavg")),
    ),
    LeagueClaim(
        name="hfel-saves-energy",
        where="Luo et al.",
        text="Association and allocation by cost spend less energy and time than nearest edges with equal shares.",
        statement="HFEL: joint edge association and resource allocation has a lower cost of energy and delay than "
        "nearest and other associations.",
        baseline="HierFAVG with every device at its nearest edge, equal shares, full clock",
        assumption="cells that overlap, so that devices have a choice",
        measure="joules and seconds of equally many rounds",
        scene=scenes.OVERLAPPING,
        arms=lambda start: {
            "hfel": {"method": "hfel"},
            "nearest": {"method": "hierfavg", "association.name": "nearest"},
        },
        differs=("plan.scheme", "plan.hfel", "association"),
        judge=every(spends_less("hfel", "nearest", "energy_j"), spends_less("hfel", "nearest", "time_s")),
        is_trained=False,
    ),
    LeagueClaim(
        name="in-network-aggregation-saves-time",
        where="Dinh et al.",
        text="Aggregation on the way takes much less time than a star, and routing less than nearest edges.",
        statement="In-network aggregation: routing users to edge nodes or the cloud, with aggregation on the way, is "
        "several times faster than a star.",
        baseline="a star: one server for all devices; and HierFAVG with nearest edges, which aggregates but does not "
        "route",
        assumption="cells that overlap, so that devices can be routed",
        measure="seconds of equally many rounds",
        scene=scenes.OVERLAPPING,
        arms=lambda start: {
            "ina": {"method": "ina"},
            "nearest": {"method": "hierfavg", "association.name": "nearest"},
            "star": method("fedavg", start),
        },
        differs=("plan.scheme", "plan.deadline_s", "association", "topology", "selection"),
        judge=every(
            spends_less("ina", "star", "time_s", much=True), spends_less("ina", "nearest", "time_s", much=True)
        ),
        is_trained=False,
    ),
    LeagueClaim(
        name="fog-saves-time",
        where="Saha, Misra, Deb",
        text="A fog node in place of the cloud takes less time than FL without edges, and than HierFAVG behind a slow "
        "cloud link.",
        statement="FogFL: a fog node chosen as global aggregator lowers delay against FL by way of the cloud.",
        baseline="FL over the cloud, without edges and with them",
        assumption="the link to the cloud is ten times slower than those between edges",
        measure="seconds of equally many rounds",
        scene=scenes.COSTS,
        arms=_fog,
        differs=("topology", "plan.deadline_s", "selection"),
        judge=every(spends_less("fogfl", "fedavg", "time_s"), spends_less("fogfl", "hierfavg", "time_s")),
        is_trained=False,
    ),
    LeagueClaim(
        name="lans-save-time",
        where="Yuan et al.",
        text="Averaging in local networks takes less time than FL over the wide one alone, and than radio edges.",
        statement="Hierarchical FL through LAN-WAN orchestration: frequent averages in LANs and rare ones over the WAN "
        "are faster than FL over the WAN, with far less WAN traffic.",
        baseline="FedAvg over the WAN, here the radio to the cloud; and HierFAVG, whose edges average as often",
        assumption="LAN links of 100 Mbit/s, a WAN that all share",
        measure="time to a target accuracy",
        scene=scenes.PAPER,
        arms=with_methods("lanfl", "fedavg", "hierfavg"),
        differs=("topology", "plan.deadline_s", "selection"),
        judge=every(cheaper("lanfl", "fedavg"), cheaper("lanfl", "hierfavg")),
    ),
    LeagueClaim(
        name="groups-of-devices-save-uploads",
        where="Zhang, Liu, Liu, Argyriou, Han",
        text="Masters that upload for near devices save uploads at the same accuracy.",
        statement="D2D-assisted FL: groups whose master uploads one model cut the traffic to the base station, the "
        "more so the denser the cell, at the same accuracy.",
        baseline="FL in which every device uploads",
        assumption="near devices reach each other directly; bits between devices are not traffic of the base station",
        measure="uplink bits of equally many rounds; accuracy after them",
        scene=scenes.PAPER,
        arms=with_methods("d2d-fedavg", "hierfavg"),
        differs=("topology",),
        judge=every(
            spends_less("d2d-fedavg", "hierfavg", "uploaded_bits", much=True), no_worse("d2d-fedavg", "hierfavg")
        ),
    ),
    LeagueClaim(
        name="tiers-save-uploads",
        where="Zhang, Deng, Mahmoodi",
        text="Pruning saves bits to an accuracy, against the same tiers of devices without pruning.",
        statement="TT-Prune: pruning and bandwidth chosen together lower the communication of time-triggered FL by 40 "
        "% at the same accuracy.",
        baseline="the same time-triggered tiers without pruning",
        assumption="devices of unequal speed in different tiers",
        measure="uplink bits to a target accuracy",
        scene=scenes.TIERS,
        arms=_tiers,
        differs=("plan.scheme",),
        judge=cheaper("tt-prune", "unpruned", "bits_to_target"),
    ),
    LeagueClaim(
        name="slack-factors-shorten-rounds",
        where="Wu, He, Lin, Mao",
        text="Quotas with slack factors need less time and energy to an accuracy when three devices in ten are lost.",
        statement="HybridFL: slack factors and quota-triggered rounds shorten rounds and save energy to an accuracy "
        "with unreliable devices.",
        baseline="HierFAVG that samples the same share of devices and waits for all of them",
        assumption="three devices in ten are lost, C = 0.3, equally many edge rounds",
        measure="time and joules to a target accuracy",
        scene=scenes.LOST,
        arms=_quotas,
        differs=("selection", "aggregation"),
        judge=every(cheaper("hybridfl", "sampled"), cheaper("hybridfl", "sampled", "joules_to_target")),
    ),
)
