"""Claims about compressed updates."""

from __future__ import annotations

from collections.abc import Mapping

from airprune.scenario import Scenario
from airprune.studies.league.claims import LeagueClaim, Settings
from airprune.studies.league.judges import ahead_at_equal_time, better, cheaper, every, no_worse, same
from airprune.studies.league.sources import scenes
from airprune.studies.league.sources.scenes import with_methods


def _sparse_uploads(start: Scenario) -> Mapping[str, Settings]:
    return {
        "error feedback": {"method": "topk-1"},
        "none": {"method": "topk-1", "compression.top-k.memory": False},
    }


def _reassigned(start: Scenario) -> Mapping[str, Settings]:
    """Moves every device to another edge before every round, or none."""
    moving = {"association.name": "handover", "association.handover.probability": 1.0}
    return {"as placed": {"method": "hier-qsgd"}, "reassigned": {"method": "hier-qsgd", **moving}}


def _signs(start: Scenario) -> Mapping[str, Settings]:
    """Compares signs and votes with the same gradients in full precision, and their mean."""
    precise = {"compression.name": "cast", "aggregation.edge": "masked-mean"}
    return {"signs": {"method": "hier-sign"}, "full precision": {"method": "hier-sign", **precise}}


CLAIMS: tuple[LeagueClaim, ...] = (
    LeagueClaim(
        name="memory-rescues-top-k",
        where="Stich, Cordonnier, Jaggi",
        text="With error feedback, one entry in a hundred converges where it stalls without.",
        statement="Sparsified SGD with memory: top-k with error feedback converges at the rate of SGD, without it does "
        "not.",
        baseline="top-k of the same size without error feedback",
        assumption="1 % of the entries",
        measure="accuracy after equally many rounds",
        scene=scenes.PAPER,
        arms=_sparse_uploads,
        differs=("compression.top-k.memory",),
        judge=better("error feedback", "none", much=True),
    ),
    LeagueClaim(
        name="sign-is-comparable",
        where="Karimireddy et al.",
        text="One bit per weight is about as accurate as full precision, at far fewer uplink bits to the target.",
        statement="Error feedback fixes SignSGD: signs with error feedback generalise as SGD does, at one bit each.",
        baseline="updates in full precision (32 bits)",
        assumption="IID data, error feedback",
        measure="accuracy after equally many rounds; uplink bits to a target accuracy",
        scene=scenes.PAPER,
        arms=with_methods("sign", "fp32"),
        differs=("compression",),
        judge=every(no_worse("sign", "fp32"), cheaper("sign", "fp32", "bits_to_target", much=True)),
    ),
    LeagueClaim(
        name="hier-sign-is-comparable",
        where="Kazemi et al.",
        text="Votes of signs at the edges are about as accurate as full precision.",
        statement="HierSignSGD: with IID edges, signs of gradients and majority votes are about as accurate as "
        "full-precision hierarchical SGD.",
        baseline="the same gradients in full precision, averaged",
        assumption="one gradient per device and edge round in both, IID data, no momentum",
        measure="accuracy after equally many gradient steps",
        scene=scenes.PAPER,
        arms=_signs,
        differs=("compression", "aggregation"),
        judge=no_worse("signs", "full precision"),
    ),
    LeagueClaim(
        name="adaptive-is-as-accurate-and-sooner",
        where="own",
        text="Shares, bits and deadline chosen together: as accurate as whole models at 32 bits, and sooner than these "
        "and than a constant (sparse ternary, 1/32).",
        statement="Our own claim about `adaptive-bits`.",
        baseline="fp32 and stc, neither with a planner",
        assumption="all links charged, the paper's clock",
        measure="accuracy after equally many rounds; time to a target accuracy",
        scene=scenes.PAPER,
        arms=with_methods("adaptive-bits", "fp32", "stc"),
        differs=("compression", "masking", "plan.scheme", "plan.air-budget", "plan.deadline_s"),
        judge=every(
            no_worse("adaptive-bits", "fp32"), cheaper("adaptive-bits", "fp32"), cheaper("adaptive-bits", "stc")
        ),
    ),
    LeagueClaim(
        name="where-devices-sit-does-not-matter",
        where="Liu, Zhang, Song, Letaief",
        text="With quantised updates it does not matter which device sits at which edge, on IID data.",
        statement="Hierarchical FL with quantization: convergence depends on the numbers of devices and edges, not on "
        "which device sits where.",
        baseline="another association of the same devices",
        assumption="IID data, quantised updates",
        measure="accuracy after equally many rounds",
        scene=scenes.PAPER,
        arms=_reassigned,
        differs=("association",),
        judge=same("as placed", "reassigned"),
    ),
    LeagueClaim(
        name="fewer-and-fewer-local-steps-are-ahead",
        where="Liu, Zhang, Song, Letaief",
        text="Local steps that decay with the loss are ahead of a constant number at equal simulated time.",
        statement="Hierarchical FL with quantization: a number of local steps that falls with the loss beats a "
        "constant one at equal time.",
        baseline="the same quantised training with a constant number of local steps",
        assumption="local steps take a good part of a round's time",
        measure="accuracy at equal time",
        scene=scenes.DEVICE_CLOCK,
        arms=with_methods("hier-qsgd-decay", "hier-qsgd"),
        differs=("train.steps_decay",),
        judge=ahead_at_equal_time("hier-qsgd-decay", "hier-qsgd"),
    ),
    LeagueClaim(
        name="signs-in-groups-save-bits",
        where="our reading of D2D sign-SGD",
        text="Votes of signs in groups reach the accuracy of masters' models with far fewer uplink bits.",
        statement="The paper's words on D2D sign-SGD: lower communication cost than D2D-FedAvg. Its source could not "
        "be identified.",
        baseline="D2D-FedAvg",
        assumption="the same groups; one gradient per round for signs, so that bits to a target are compared",
        measure="uplink bits to a target accuracy",
        scene=scenes.PAPER,
        arms=with_methods("d2d-sign", "d2d-fedavg"),
        differs=("compression", "aggregation", "train", "plan.local_iterations", "rounds"),
        judge=cheaper("d2d-sign", "d2d-fedavg", "bits_to_target", much=True),
    ),
)
