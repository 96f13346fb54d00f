"""Claims about sub-models of whole units or layers: dropout, widths, partial training, small models."""

from __future__ import annotations

from collections.abc import Mapping

from airprune.scenario import Scenario
from airprune.studies.league.claims import LeagueClaim, Settings
from airprune.studies.league.judges import better, no_worse
from airprune.studies.league.sources import scenes
from airprune.studies.league.sources.scenes import with_methods


def _widths(start: Scenario) -> Mapping[str, Settings]:
    """Compares widths by device, 1 or ½, with ½ for all: no device may keep more than 30 % of the weights."""
    return {
        "mixed widths": {"method": "heterofl"},
        "smallest width": {"method": "heterofl", "plan.min_pruning_ratio": 0.7},
    }


def _partial_layers(start: Scenario) -> Mapping[str, Settings]:
    """Lets devices train a quarter of all layers' weights, with a deadline that none misses."""
    quarter = {"plan.deadline_s": 1.0, "plan.min_pruning_ratio": 0.75, "plan.max_pruning_ratio": 0.75}
    return {
        "fedplt": {"method": "fedplt", "model.prunable": ["*"], **quarter},
        "whole models": {"method": "hierfavg"},
    }


def _scored(start: Scenario) -> Mapping[str, Settings]:
    """Compares one sub-network for all by scores and at random, with the same averages and without dropout's scale."""
    random = {"aggregation.edge": "data-weighted", "aggregation.cloud": "data-weighted", "masking.feddrop.scale": False}
    return {"afd": {"method": "afd"}, "random": {"method": "feddrop-uniform", **random}}


CLAIMS: tuple[LeagueClaim, ...] = (
    LeagueClaim(
        name="mixed-widths-beat-the-smallest",
        where="Diao, Ding, Tarokh",
        text="Mixed widths beat the same width for all, the one that every device can carry.",
        statement="HeteroFL: a federation of mixed widths is more accurate than one in which all have the smallest.",
        baseline="all devices at the smallest width",
        assumption="devices of unequal capacity, so that widths differ",
        measure="accuracy of the widest model that a device has trained",
        scene=scenes.UNEQUAL_WIDE,
        arms=_widths,
        differs=("plan.min_pruning_ratio",),
        judge=better("mixed widths", "smallest width"),
    ),
    LeagueClaim(
        name="partial-layers-match-whole-models",
        where="Dabaja, El-Azouzi",
        text="Devices that train a quarter of the weights are about as accurate as whole models.",
        statement="FedPLT: the accuracy of FedAvg with 71 to 82 % fewer trainable weights per device.",
        baseline="FedAvg of whole models",
        assumption="75 % fewer trained weights on every device, sub-layers of all layers",
        measure="accuracy after equally many rounds",
        scene=scenes.PAPER,
        arms=_partial_layers,
        differs=("masking", "model.prunable", "plan"),
        judge=no_worse("fedplt", "whole models"),
    ),
    LeagueClaim(
        name="channel-aware-dropout-beats-uniform",
        where="Wen, Jeon, Huang",
        text="Dropout rates by device beat one rate for all.",
        statement="Federated dropout: sub-networks sized by each device's state are more accurate than one sub-network "
        "for all, sized for the slowest.",
        baseline="uniform dropout, sized for the slowest device",
        assumption="devices of unequal speed, so that rates differ",
        measure="accuracy after equally many rounds",
        scene=scenes.UNEQUAL_WIDE,
        arms=with_methods("feddrop", "feddrop-uniform"),
        differs=("masking.feddrop.subnets",),
        judge=better("feddrop", "feddrop-uniform"),
    ),
    LeagueClaim(
        name="ordered-dropout-beats-random",
        where="Horváth et al.",
        text="Ordered sub-models beat random ones of the same layers and budgets.",
        statement="FjORD: ordered dropout is more accurate than federated dropout at equal footprint.",
        baseline="federated dropout of the same layers, with the same budgets",
        assumption="devices of unequal capacity; linear layers in both arms",
        measure="accuracy after equally many rounds",
        scene=scenes.UNEQUAL_WIDE,
        arms=with_methods("fjord-fc", "feddrop"),
        differs=("masking", "aggregation"),
        judge=better("fjord-fc", "feddrop"),
    ),
    LeagueClaim(
        name="distillation-helps-ordered-dropout",
        where="Horváth et al.",
        text="Distillation makes ordered sub-models more accurate.",
        statement="FjORD: self-distillation from the widest sub-model of a device raises accuracy.",
        baseline="FjORD without distillation",
        assumption="every device has several widths; all layers",
        measure="accuracy after equally many rounds",
        scene=scenes.PAPER,
        arms=with_methods("fjord-kd", "fjord"),
        differs=("masking",),
        judge=better("fjord-kd", "fjord"),
    ),
    LeagueClaim(
        name="adaptive-dropout-beats-random",
        where="Bouacida, Hou, Zang, Liu",
        text="Sub-models by scores beat random ones of the same size.",
        statement="Adaptive federated dropout: units kept by a score map generalise better than random ones.",
        baseline="random federated dropout, one sub-network of the same size for all devices",
        assumption="equal sizes, averages and scales",
        measure="accuracy after equally many rounds",
        scene=scenes.WIDE,
        arms=_scored,
        differs=("masking",),
        judge=better("afd", "random"),
    ),
    LeagueClaim(
        name="ensembles-beat-dropout",
        where="Cheng et al.",
        text="An ensemble of small models is at least as accurate as federated dropout.",
        statement="Does federated dropout actually work?: small models trained separately, whose predictions are "
        "averaged, beat federated dropout at equal bits per device.",
        baseline="federated dropout with sub-networks of the same size",
        assumption="equal devices, so that sizes are equal",
        measure="accuracy after equally many rounds",
        scene=scenes.WIDE,
        arms=with_methods("small-ensemble", "feddrop"),
        differs=("masking", "topology", "aggregation"),
        judge=no_worse("small-ensemble", "feddrop"),
    ),
)
