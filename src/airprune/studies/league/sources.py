"""The claims of the methods' sources. To add a claim, add its line to `CLAIMS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airprune.scenario import Scenario
from airprune.studies.league.claims import LeagueClaim, Settings
from airprune.studies.league.judges import (
    Judge,
    ahead_at_equal_time,
    better,
    cheaper,
    every,
    faster_early,
    no_worse,
    same,
    spends_less,
    trend,
)
from airprune.studies.league.tracks import FLAT_DEADLINE, deadline_s


def _methods(first: str, second: str, **settings: Any) -> Callable[[Scenario], Mapping[str, Settings]]:
    """Returns two methods with the same settings otherwise."""
    changes = {key.replace("__", "."): value for key, value in settings.items()}
    return lambda base: {name: {**changes, "method": name} for name in (first, second)}


def _two(name: str, where: str, text: str, pair: tuple[str, str], judge: Judge, **settings: Any) -> LeagueClaim:
    """Returns a claim about one method against another one."""
    return LeagueClaim(name=name, where=where, text=text, needs=pair, arms=_methods(*pair, **settings), judge=judge)


def _local_work(base: Scenario) -> Mapping[str, Settings]:
    return {
        f"{epochs} local epoch{'s' if epochs > 1 else ''}": {
            "method": "fedavg",
            "train.local_epochs": epochs,
            "plan.local_iterations": epochs,
        }
        for epochs in (5, 1)
    }


def _fixed_product(base: Scenario) -> Mapping[str, Settings]:
    return {
        f"{local} × {edge}": {
            "method": "hierfavg",
            "data.partition": "edge-iid",
            "train.local_epochs": local,
            "plan.local_iterations": local,
            "rounds.edge_rounds": edge,
        }
        for local, edge in ((1, 4), (4, 1))
    }


def _between_periods(base: Scenario) -> Mapping[str, Settings]:
    """Averages over all devices after every edge round, over groups in between, or only after all of them."""
    edge_rounds, epochs = max(base.edge_rounds_of), base.train.local_epochs
    shared = {"data.partition": "shards", "data.classes_per_device": 2}
    return {
        "short period": {
            **shared,
            "method": "hierfavg",
            "rounds.edge_rounds": 1,
            "rounds.global_rounds": base.rounds.global_rounds * edge_rounds,
        },
        "H-SGD": {**shared, "method": "h-sgd"},
        "long period": {
            **shared,
            "method": "hierfavg",
            "rounds.edge_rounds": 1,
            "train.local_epochs": epochs * edge_rounds,
            "plan.local_iterations": base.plan.local_iterations * edge_rounds,
        },
    }


def _moving(update: str, partition: str) -> Callable[[Scenario], Mapping[str, Settings]]:
    return lambda base: {
        f"p = {probability:g}": {
            "method": "mobility",
            "data.partition": partition,
            "association.handover.update": update,
            "association.handover.probability": probability,
        }
        for probability in (0.0, 0.2, 0.5)
    }


def _selecting(base: Scenario) -> Mapping[str, Settings]:
    tight = {
        "method": "adaptive-pruning",
        "network.cpu_hz": 5e8,
        "network.cpu_hz_max": 3e9,
        "plan.cycles_per_weight": 100.0,
        "plan.deadline_s": deadline_s(base) * 25.0 / 30.0,
    }
    return {"selecting": {**tight, "selection.name": "ratio-cap"}, "pruning all": tight}


def _hierarchy(base: Scenario) -> Mapping[str, Settings]:
    return {
        "hierarchical": {"method": "adaptive-pruning"},
        "liu2022": {"method": "liu2022", "plan.deadline_s": deadline_s(base) * FLAT_DEADLINE},
    }


def _sparse_uploads(base: Scenario) -> Mapping[str, Settings]:
    return {name: {"method": name, "compression.top-k.share": 0.01} for name in ("mem-sgd", "topk")}


def _ranked(base: Scenario) -> Mapping[str, Settings]:
    """Prunes by the paper's masks at one fixed ratio, with a deadline that no device misses."""
    fixed = {"plan.deadline_s": 1.0, "plan.min_pruning_ratio": 0.7, "plan.max_pruning_ratio": 0.7}
    return {
        name: {**fixed, "method": "adaptive-pruning", "masking.probe.importance": name}
        for name in ("taylor", "magnitude")
    }


def _reassigned(base: Scenario) -> Mapping[str, Settings]:
    """Moves every device to another edge before every round, or none."""
    moving = {"association.name": "handover", "association.handover.probability": 1.0}
    return {"as placed": {"method": "hier-qsgd"}, "reassigned": {"method": "hier-qsgd", **moving}}


def _gradually(base: Scenario) -> Mapping[str, Settings]:
    return {
        "gradually": {"method": "iterative"},
        "at once": {"method": "iterative", "masking.iterative.late": False},
    }


def _feedback(base: Scenario) -> Mapping[str, Settings]:
    """Compares masks that may come back with the largest weights chosen once; both as the deadline needs."""
    return {"dpf": {"method": "dpf"}, "fixed mask": {"method": "iterative", "masking.iterative.late": False}}


def _unpruned(method: str) -> Callable[[Scenario], Mapping[str, Settings]]:
    return lambda base: {
        method: {"method": method},
        "no pruning": {"method": "adaptive-pruning", "plan.scheme": "no-pruning"},
    }


_NON_IID = {"data__partition": "shards", "data__classes_per_device": 2}

CLAIMS: tuple[LeagueClaim, ...] = (
    LeagueClaim(
        name="local-work-saves-rounds",
        where="McMahan et al.",
        text="More local work needs fewer rounds to a target.",
        needs=("fedavg",),
        arms=_local_work,
        judge=cheaper("5 local epochs", "1 local epoch", "rounds_to_target"),
    ),
    LeagueClaim(
        name="fewer-local-steps-save-time",
        where="Liu, Zhang, Song, Letaief",
        text="For a fixed product of local steps and edge rounds, fewer local steps reach the target in less time.",
        needs=("hierfavg",),
        arms=_fixed_product,
        judge=cheaper("1 × 4", "4 × 1"),
    ),
    LeagueClaim(
        name="h-sgd-lies-between",
        where="Wang, Wang, Chen, Ji",
        text="H-SGD is as accurate as something between local SGD with the short and with the long period.",
        needs=("h-sgd", "hierfavg"),
        arms=_between_periods,
        judge=every(better("short period", "H-SGD"), better("H-SGD", "long period")),
    ),
    LeagueClaim(
        name="lost-updates-of-moving-devices-hurt",
        where="Feng et al.",
        text="Accuracy falls as more devices move, if their updates are lost.",
        needs=("mobility",),
        arms=_moving("lost", "edge-non-iid"),
        judge=trend("p = 0", "p = 0.2", "p = 0.5", rising=False),
    ),
    LeagueClaim(
        name="moving-devices-mix-data",
        where="Chen et al.",
        text="Accuracy rises as more devices move between edges of non-IID data, if they take their updates along.",
        needs=("mobility",),
        arms=_moving("carried", "edge-non-iid"),
        judge=trend("p = 0", "p = 0.2", "p = 0.5", rising=True),
    ),
    LeagueClaim(
        name="selection-beats-pruning-everybody",
        where="Liu et al. 2022",
        text="Excluding devices beats pruning all of them under a tight deadline with unequal CPUs.",
        needs=("liu2022",),
        arms=_selecting,
        judge=better("selecting", "pruning all"),
    ),
    LeagueClaim(
        name="hierarchy-beats-liu2022",
        where="the paper",
        text="Hierarchical pruning is more accurate than joint pruning and selection without edges.",
        needs=("liu2022",),
        arms=_hierarchy,
        judge=better("hierarchical", "liu2022"),
    ),
    LeagueClaim(
        name="taylor-beats-magnitude",
        where="Molchanov et al.",
        text="Masks ranked by Taylor scores are more accurate than by magnitude, at ρ = 0.7.",
        needs=("adaptive-pruning",),
        arms=_ranked,
        judge=better("taylor", "magnitude"),
    ),
    _two(
        "frozen-beats-zeroed",
        "partial training",
        "Weights that do not fit had better keep their value than become zero.",
        ("frozen-pruning", "adaptive-pruning"),
        better("frozen-pruning", "adaptive-pruning"),
    ),
    LeagueClaim(
        name="memory-rescues-top-k",
        where="Stich, Cordonnier, Jaggi",
        text="With error feedback, one entry in a hundred converges where it stalls without.",
        needs=("mem-sgd", "topk"),
        arms=_sparse_uploads,
        judge=better("mem-sgd", "topk"),
    ),
    _two(
        "sign-is-comparable",
        "Karimireddy et al.",
        "One bit per weight is about as accurate as full precision, and sooner at the target.",
        ("sign", "fp32"),
        every(no_worse("sign", "fp32"), cheaper("sign", "fp32")),
    ),
    _two(
        "fedadam-is-faster-early",
        "Reddi et al.",
        "Adam at the cloud is more accurate in the first rounds, on non-IID data.",
        ("fedadam", "hierfavg"),
        faster_early("fedadam", "hierfavg"),
        **_NON_IID,
    ),
    _two(
        "fedprox-helps-on-unlike-data",
        "Li et al.",
        "A proximal term is more accurate on non-IID data.",
        ("fedprox", "hierfavg"),
        better("fedprox", "hierfavg"),
        **_NON_IID,
    ),
    _two(
        "least-variance-beats-least-pruning",
        "Xie et al.; our question",
        "Shares of least variance, which give every device bandwidth, beat shares of least pruning.",
        ("variance", "adaptive-pruning"),
        better("variance", "adaptive-pruning"),
    ),
    LeagueClaim(
        name="adaptive-is-as-accurate-and-sooner",
        where="own",
        text="Shares, bits and deadline chosen together: as accurate as no pruning, and sooner.",
        needs=("adaptive-bits",),
        arms=_unpruned("adaptive-bits"),
        judge=every(no_worse("adaptive-bits", "no pruning"), cheaper("adaptive-bits", "no pruning")),
    ),
    LeagueClaim(
        name="where-devices-sit-does-not-matter",
        where="Liu, Zhang, Song, Letaief",
        text="With quantised updates it does not matter which device sits at which edge, on IID data.",
        needs=("hier-qsgd",),
        arms=_reassigned,
        judge=same("as placed", "reassigned"),
    ),
    _two(
        "fewer-and-fewer-local-steps-are-ahead",
        "Liu, Zhang, Song, Letaief",
        "Local steps that decay with the loss are ahead of a constant number at equal simulated time.",
        ("hier-qsgd-decay", "hier-qsgd"),
        ahead_at_equal_time("hier-qsgd-decay", "hier-qsgd"),
    ),
    LeagueClaim(
        name="gradual-pruning-loses-less",
        where="PruneFL's repository; Shen et al.",
        text="Pruning gradually loses less accuracy than pruning at once to the same density.",
        needs=("iterative",),
        arms=_gradually,
        judge=better("gradually", "at once"),
    ),
    LeagueClaim(
        name="feedback-beats-a-fixed-mask",
        where="Lin et al.",
        text="Masks that may come back are more accurate than the largest weights chosen once.",
        needs=("dpf", "iterative"),
        arms=_feedback,
        judge=better("dpf", "fixed mask"),
    ),
    _two(
        "mixed-widths-beat-the-smallest",
        "Diao, Ding, Tarokh",
        "Mixed widths beat the same width for all, the one that every device can carry.",
        ("heterofl", "small-model"),
        better("heterofl", "small-model"),
    ),
    _two(
        "partial-layers-match-widths",
        "Dabaja, El-Azouzi",
        "Sub-layers of whole models are at least as accurate as narrow models.",
        ("fedplt", "heterofl"),
        no_worse("fedplt", "heterofl"),
    ),
    _two(
        "groups-of-devices-save-uploads",
        "Zhang, Liu, Liu, Argyriou, Han",
        "Masters that upload for near devices save uploads at the same accuracy.",
        ("d2d-fedavg", "hierfavg"),
        every(spends_less("d2d-fedavg", "hierfavg", "uploaded_bits"), no_worse("d2d-fedavg", "hierfavg")),
    ),
    _two(
        "signs-in-groups-save-bits",
        "our reading of D2D sign-SGD",
        "Votes of signs in groups take far fewer bits than masters' models, at about their accuracy.",
        ("d2d-sign", "d2d-fedavg"),
        every(spends_less("d2d-sign", "d2d-fedavg", "uploaded_bits"), no_worse("d2d-sign", "d2d-fedavg")),
    ),
    _two(
        "lans-save-time",
        "Yuan et al.",
        "Averaging in local networks takes less time than FL over the wide one alone.",
        ("lanfl", "fedavg"),
        cheaper("lanfl", "fedavg"),
    ),
    _two(
        "tiers-save-uploads",
        "Zhang, Deng, Mahmoodi",
        "Slow devices that deliver more rarely save uploads to the same accuracy.",
        ("tt-prune", "hierfavg"),
        cheaper("tt-prune", "hierfavg", "bits_to_target"),
    ),
    _two(
        "scaffold-beats-fedavg-per-round",
        "Karimireddy et al.",
        "Control variates are more accurate after equally many rounds, on non-IID data.",
        ("scaffold", "hierfavg"),
        better("scaffold", "hierfavg"),
        **_NON_IID,
    ),
    _two(
        "prunefl-is-sooner",
        "Jiang et al.",
        "Adaptive pruning of one model reaches the accuracy of FedAvg in less time.",
        ("prunefl", "hierfavg"),
        cheaper("prunefl", "hierfavg"),
    ),
    _two(
        "channel-aware-dropout-beats-uniform",
        "Wen, Jeon, Huang",
        "Dropout rates by device beat one rate for all.",
        ("feddrop", "feddrop-uniform"),
        better("feddrop", "feddrop-uniform"),
    ),
    _two(
        "ordered-dropout-beats-random",
        "Horváth et al.",
        "Ordered sub-models beat random ones of the same size.",
        ("fjord", "feddrop"),
        better("fjord", "feddrop"),
    ),
    _two(
        "distillation-helps-ordered-dropout",
        "Horváth et al.",
        "Distillation makes ordered sub-models more accurate.",
        ("fjord-kd", "fjord"),
        better("fjord-kd", "fjord"),
    ),
    _two(
        "adaptive-dropout-beats-random",
        "Bouacida, Hou, Zang, Liu",
        "Sub-models by scores beat random ones of the same size.",
        ("afd", "feddrop"),
        better("afd", "feddrop"),
    ),
    _two(
        "ensembles-beat-dropout",
        "Cheng et al.",
        "An ensemble of small models is at least as accurate as federated dropout.",
        ("small-ensemble", "feddrop"),
        no_worse("small-ensemble", "feddrop"),
    ),
    _two(
        "hier-sign-is-comparable",
        "Kazemi et al.",
        "Votes of signs at the edges are about as accurate as full precision.",
        ("hier-sign", "fp32"),
        no_worse("hier-sign", "fp32"),
    ),
    _two(
        "least-energy-saves-energy",
        "Al-Abiad, Hassan, Hossain",
        "Clock and power for the deadline save much energy against full ones.",
        ("conflict-graph", "hierfavg"),
        spends_less("conflict-graph", "hierfavg", "energy_j"),
    ),
    _two(
        "phfl-saves-energy",
        "Pervej, Jin, Dai",
        "Pruning, clock and power together save energy at a small loss of accuracy.",
        ("phfl", "hierfavg"),
        every(spends_less("phfl", "hierfavg", "energy_j"), no_worse("phfl", "hierfavg")),
    ),
    _two(
        "hfel-saves-energy",
        "Luo et al.",
        "Association and allocation by cost spend less energy than FL without edges.",
        ("hfel", "fedavg"),
        spends_less("hfel", "fedavg", "energy_j"),
    ),
    _two(
        "fog-saves-time",
        "Saha, Misra, Deb",
        "A fog node in place of the cloud takes less time than FL without edges.",
        ("fogfl", "fedavg"),
        spends_less("fogfl", "fedavg", "time_s"),
    ),
    _two(
        "in-network-aggregation-saves-time",
        "Dinh et al.",
        "Aggregation on the way takes much less time than a star.",
        ("ina", "fedavg"),
        spends_less("ina", "fedavg", "time_s"),
    ),
    _two(
        "slack-factors-shorten-rounds",
        "Wu, He, Lin, Mao",
        "Quotas with slack factors take less time and energy when three devices in ten are lost.",
        ("hybridfl", "hierfavg"),
        every(spends_less("hybridfl", "hierfavg", "time_s"), spends_less("hybridfl", "hierfavg", "energy_j")),
        events__dropout_probability=0.3,
    ),
)
