"""Claims about pruning: shares, masks, selection, and when to prune."""

from __future__ import annotations

from collections.abc import Mapping

from airprune.scenario import Scenario
from airprune.studies.league.claims import LeagueClaim, Settings
from airprune.studies.league.judges import better, cheaper
from airprune.studies.league.sources import scenes
from airprune.studies.league.sources.scenes import with_methods


def _selecting(start: Scenario) -> Mapping[str, Settings]:
    return {
        "selecting": {"method": "liu2022"},
        "pruning all": {"method": "liu2022", "selection.name": "everyone"},
    }


def _ranked(start: Scenario) -> Mapping[str, Settings]:
    return {name: {"method": "adaptive-pruning", "masking.probe.importance": name} for name in ("taylor", "magnitude")}


def _gradually(start: Scenario) -> Mapping[str, Settings]:
    return {
        "gradually": {"method": "iterative"},
        "at once": {"method": "iterative", "masking.iterative.late": False},
    }


def _feedback(start: Scenario) -> Mapping[str, Settings]:
    return {"dpf": {"method": "dpf"}, "fixed mask": {"method": "iterative", "masking.iterative.late": False}}


CLAIMS: tuple[LeagueClaim, ...] = (
    LeagueClaim(
        name="selection-beats-pruning-everybody",
        where="Liu et al. 2022",
        text="Excluding devices beats pruning all of them under a tight deadline with unequal CPUs.",
        statement="Joint model pruning and device selection: removing stragglers by a threshold, beside pruning, is "
        "more accurate within a latency budget.",
        baseline="pruning without selection",
        assumption="one cell, unequal CPUs, a tight deadline",
        measure="accuracy after equally many rounds",
        scene=scenes.FLAT_UNEQUAL,
        arms=_selecting,
        differs=("selection",),
        judge=better("selecting", "pruning all"),
    ),
    LeagueClaim(
        name="hierarchy-beats-liu2022",
        where="the paper",
        text="Hierarchical pruning is more accurate than joint pruning and selection without edges.",
        statement="Adaptive federated pruning …, Section VI: with edges, pruning is more accurate than without.",
        baseline="joint pruning and selection in one cell, with its deadline of 350 ms",
        assumption="30 ms per edge round with edges, 350 ms without",
        measure="accuracy after equally many rounds",
        scene=scenes.PAPER,
        arms=with_methods("adaptive-pruning", "liu2022"),
        differs=("topology", "selection", "plan.deadline_s"),
        judge=better("adaptive-pruning", "liu2022"),
    ),
    LeagueClaim(
        name="taylor-beats-magnitude",
        where="Molchanov et al.",
        text="Masks ranked by Taylor scores are more accurate than by magnitude, at ρ = 0.7.",
        statement="Importance estimation for neural network pruning: Taylor scores keep more accuracy than magnitude "
        "at the same number of weights.",
        baseline="magnitude at the same number of weights",
        assumption="the same ratio for both",
        measure="accuracy at ρ = 0.7",
        scene=scenes.ONE_RATIO,
        arms=_ranked,
        differs=("masking.probe.importance",),
        judge=better("taylor", "magnitude"),
    ),
    LeagueClaim(
        name="frozen-beats-zeroed",
        where="partial training (FedPT, FedPart, FedPLT); our question",
        text="Weights that do not fit had better keep their value than become zero.",
        statement="Partial training keeps untrained weights as they are; whether that beats zeroing is our question.",
        baseline="the paper's masks and shares with zeroed weights",
        assumption="equal masks, shares and bits",
        measure="accuracy after equally many rounds",
        scene=scenes.PAPER,
        arms=with_methods("frozen-pruning", "adaptive-pruning"),
        differs=("masking", "aggregation.edge"),
        judge=better("frozen-pruning", "adaptive-pruning"),
    ),
    LeagueClaim(
        name="least-variance-beats-least-pruning",
        where="Xie et al.; our question",
        text="Shares of least variance, which give every device bandwidth, beat shares of least pruning.",
        statement="Federated dropout: convergence analysis and resource allocation minimises the variance that dropout "
        "adds; whether its shares beat those of least pruning is our question.",
        baseline="the paper's shares of least pruning, the same masks",
        assumption="the paper's deadline",
        measure="accuracy after equally many rounds",
        scene=scenes.PAPER,
        arms=with_methods("variance", "adaptive-pruning"),
        differs=("plan.scheme",),
        judge=better("variance", "adaptive-pruning"),
    ),
    LeagueClaim(
        name="gradual-pruning-loses-less",
        where="PruneFL's repository; Shen et al.",
        text="Pruning gradually loses less accuracy than pruning at once to the same density.",
        statement="When to prune?: pruning at initialisation loses more accuracy than pruning during training at the "
        "same density.",
        baseline="one-shot magnitude pruning before the first round, to the same density",
        assumption="equal final density, no deadline that either misses",
        measure="accuracy after equally many rounds",
        scene=scenes.ONE_RATIO,
        arms=_gradually,
        differs=("masking.iterative.late",),
        judge=better("gradually", "at once"),
    ),
    LeagueClaim(
        name="feedback-beats-a-fixed-mask",
        where="Lin et al.",
        text="Masks that may come back are more accurate than the largest weights chosen once.",
        statement="Dynamic model pruning with feedback: dense weights moved by the pruned model's gradient recover "
        "from wrong masks and beat pruning with fixed masks.",
        baseline="magnitude pruning with a fixed mask, at the same density",
        assumption="equal density",
        measure="accuracy after equally many rounds",
        scene=scenes.ONE_RATIO,
        arms=_feedback,
        differs=("masking",),
        judge=better("dpf", "fixed mask"),
    ),
    LeagueClaim(
        name="prunefl-is-sooner",
        where="Jiang et al.",
        text="Adaptive pruning of one model reaches the accuracy of FedAvg in less time.",
        statement="Model pruning enables efficient federated learning on edge devices: less time to an accuracy than "
        "conventional FL, at about its final accuracy.",
        baseline="FedAvg of whole models on the same topology",
        assumption="time grows with the number of weights that are trained and sent",
        measure="time to a target accuracy",
        scene=scenes.PAPER,
        arms=with_methods("prunefl", "hierfavg"),
        differs=("masking", "plan.scheme"),
        judge=cheaper("prunefl", "hierfavg"),
    ),
)
