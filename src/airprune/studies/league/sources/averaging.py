"""Claims about averaging: how often, over whom, and with which optimiser."""

from __future__ import annotations

from collections.abc import Mapping

from airprune.scenario import Scenario
from airprune.studies.league.claims import LeagueClaim, Settings
from airprune.studies.league.judges import better, cheaper, every, faster_early, no_worse, trend
from airprune.studies.league.sources import scenes
from airprune.studies.league.sources.scenes import Arms, method

_WORK = ("train.local_epochs", "plan.local_iterations")


def _epochs(count: int) -> Settings:
    return dict.fromkeys(_WORK, count)


def _local_work(start: Scenario) -> Mapping[str, Settings]:
    share = {"selection__random-share__share": 0.1}
    return {
        "5 local epochs": {**method("fedavg", start, **share), **_epochs(5)},
        "1 local epoch": {**method("fedavg", start, **share), **_epochs(1)},
    }


def _fixed_product(start: Scenario) -> Mapping[str, Settings]:
    return {
        f"{local} × {edge}": {"method": "hierfavg", "rounds.edge_rounds": edge, **_epochs(local)}
        for local, edge in ((1, 4), (4, 1))
    }


def _between_periods(start: Scenario) -> Mapping[str, Settings]:
    """Averages over all devices after every epoch, over those of an edge in between, or only after four epochs."""
    rounds = start.rounds.global_rounds
    return {
        "short period": {
            "method": "hierfavg",
            "rounds.edge_rounds": 1,
            "rounds.global_rounds": 4 * rounds,
            **_epochs(1),
        },
        "H-SGD": {"method": "hierfavg", "rounds.edge_rounds": 4, **_epochs(1)},
        "long period": {"method": "hierfavg", "rounds.edge_rounds": 1, **_epochs(4)},
    }


def _moving(update: str) -> Arms:
    """Returns no movement, which is HierFAVG to the bit, and two probabilities of moving."""

    def arms(start: Scenario) -> Mapping[str, Settings]:
        moving = {
            f"p = {probability:g}": {
                "method": "mobility",
                "association.handover.update": update,
                "association.handover.probability": probability,
            }
            for probability in (0.2, 0.5)
        }
        return {"p = 0": {"method": "hierfavg"}, **moving}

    return arms


def _control_variates(start: Scenario) -> Mapping[str, Settings]:
    """Compares SCAFFOLD with the same averages and plain SGD, without its control variates."""
    return {"scaffold": {"method": "scaffold"}, "without": {"method": "scaffold", "objective.name": "plain"}}


def _server_adam(start: Scenario) -> Mapping[str, Settings]:
    """Sets the source's constants; the server's rate is tuned beside the devices'."""
    adam = {"aggregation.adam.tau": 1e-3, "aggregation.adam.start": 1e-6}
    return {"fedadam": {"method": "fedadam", **adam}, "hierfavg": {"method": "hierfavg"}}


CLAIMS: tuple[LeagueClaim, ...] = (
    LeagueClaim(
        name="local-work-saves-rounds",
        where="McMahan et al.",
        text="More local work needs far fewer rounds to a target.",
        statement="Communication-efficient learning …, Section 3: at a fixed share of devices per round, more local "
        "epochs per round reach a test accuracy in far fewer rounds.",
        baseline="FedAvg with one local epoch",
        assumption="one server, a tenth of the devices per round, IID or not",
        measure="rounds to a target accuracy",
        scene=scenes.SOME_DEVICES,
        arms=_local_work,
        differs=_WORK,
        judge=cheaper("5 local epochs", "1 local epoch", "rounds_to_target", much=True),
    ),
    LeagueClaim(
        name="fewer-local-steps-save-time",
        where="Liu, Zhang, Song, Letaief",
        text="For a fixed product of local steps and edge rounds, fewer local steps reach the target in less time.",
        statement="Client-edge-cloud hierarchical FL, experiments: with the interval of cloud averages fixed, more "
        "frequent averages at the edges shorten the time to an accuracy.",
        baseline="the same cloud interval with fewer edge averages",
        assumption="a message to the cloud takes ten times as long as one to the edge; edges hold all classes",
        measure="time to a target accuracy",
        scene=scenes.SLOW_CLOUD,
        arms=_fixed_product,
        differs=(*_WORK, "rounds.edge_rounds"),
        judge=cheaper("1 × 4", "4 × 1"),
    ),
    LeagueClaim(
        name="h-sgd-lies-between",
        where="Wang, Wang, Chen, Ji",
        text="H-SGD lies between local SGD with the short and with the long period.",
        statement="Demystifying why local aggregation helps: the bound of H-SGD with random groups is enclosed by "
        "those of local SGD with the local and with the global period.",
        baseline="local SGD averaged over all devices, after each local and after each global period",
        assumption="non-IID data, random groups, equally many gradient steps",
        measure="accuracy after equally many gradient steps",
        scene=scenes.TWO_CLASSES,
        arms=_between_periods,
        differs=(*_WORK, "rounds.edge_rounds", "rounds.global_rounds"),
        judge=every(
            better("short period", "long period"), no_worse("short period", "H-SGD"), no_worse("H-SGD", "long period")
        ),
    ),
    LeagueClaim(
        name="lost-updates-of-moving-devices-hurt",
        where="Feng et al.",
        text="Accuracy falls as more devices move, if their updates are lost.",
        statement="Mobility-aware cluster FL: devices that leave an edge during a round interrupt training, and "
        "accuracy falls with their mobility.",
        baseline="devices that do not move",
        assumption="non-IID data, updates of moving devices are lost",
        measure="accuracy after equally many rounds",
        scene=scenes.NON_IID_EDGES,
        arms=_moving("lost"),
        differs=("association",),
        judge=trend("p = 0", "p = 0.2", "p = 0.5", rising=False),
    ),
    LeagueClaim(
        name="moving-devices-mix-data",
        where="Chen et al.",
        text="Accuracy rises as more devices move between edges of non-IID data, if they take their updates along.",
        statement="Mobility accelerates learning: devices that move between edges mix their data and raise the "
        "accuracy of hierarchical FL.",
        baseline="devices that do not move",
        assumption="data differ between edges, updates go to the new edge",
        measure="accuracy after equally many rounds",
        scene=scenes.NON_IID_EDGES,
        arms=_moving("carried"),
        differs=("association",),
        judge=trend("p = 0", "p = 0.2", "p = 0.5", rising=True),
    ),
    LeagueClaim(
        name="fedprox-helps-on-unlike-data",
        where="Li et al.",
        text="A proximal term is more accurate on non-IID data with unequal work.",
        statement="Federated optimization in heterogeneous networks: with non-IID data and unequal local work, some "
        "μ > 0 is more accurate than μ = 0.",
        baseline="the same training with μ = 0, nothing dropped",
        assumption="non-IID data, devices make unequal numbers of local steps, μ tuned",
        measure="accuracy after equally many rounds",
        scene=scenes.UNEQUAL_WORK,
        arms=lambda start: {"fedprox": {"method": "fedprox"}, "hierfavg": {"method": "hierfavg"}},
        differs=("objective",),
        judge=better("fedprox", "hierfavg"),
    ),
    LeagueClaim(
        name="scaffold-beats-fedavg-per-round",
        where="Karimireddy et al.",
        text="Control variates are more accurate after equally many rounds, on non-IID data.",
        statement="SCAFFOLD, experiments: on non-IID data it reaches an accuracy in fewer rounds than FedAvg.",
        baseline="FedAvg with plain SGD and the same local steps",
        assumption="non-IID data, plain SGD without momentum in both",
        measure="accuracy after equally many rounds",
        scene=scenes.TWO_CLASSES,
        arms=_control_variates,
        differs=("objective",),
        judge=better("scaffold", "without"),
    ),
    LeagueClaim(
        name="fedadam-is-faster-early",
        where="Reddi et al.",
        text="Adam at the cloud is more accurate in the first rounds, on non-IID data.",
        statement="Adaptive federated optimization: with tuned rates, adaptive server optimisers converge faster than "
        "FedAvg in early rounds.",
        baseline="FedAvg with tuned learning rate",
        assumption="non-IID data; τ = 10⁻³, v₀ = τ², both rates tuned",
        measure="accuracy after a third of the rounds",
        scene=scenes.TWO_CLASSES,
        arms=_server_adam,
        differs=("aggregation",),
        judge=faster_early("fedadam", "hierfavg"),
    ),
)
