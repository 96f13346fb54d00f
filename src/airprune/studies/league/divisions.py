"""What is played for. One knob, the bits per weight, decides the winner otherwise; so there are several divisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airprune.errors import UnknownName, UsageError
from airprune.scenario import Scenario
from airprune.scenario.model_shape import shape_of

# The paper's own deadlines: 350 ms on a network without edges, where all devices share one band, against 30 ms.
FLAT_DEADLINE = 350.0 / 30.0


def _everybody(scenario: Scenario) -> bool:
    return True


def sends_codes(scenario: Scenario) -> bool:
    """Whether updates are compressed, so that bits per weight are the method's own business."""
    compression = scenario.to_dict()["compression"]
    return bool(compression["name"] != "cast" or compression["cast"]["format"] != "exact")


def _sends_values(scenario: Scenario) -> bool:
    return not sends_codes(scenario)


def _chooses_devices(scenario: Scenario) -> bool:
    """Those that have an answer to lost devices, and the plainest that has none."""
    return scenario.selection.name != "everyone" or scenario.method in ("hierfavg", "hybridfl")


def _has_edges(scenario: Scenario) -> bool:
    return not scenario.is_flat


@dataclass(frozen=True, kw_only=True)
class Division:
    """One table of the league.

    Attributes:
      name: a letter; divisions of one letter and different numbers are chosen together.
      about: what is special, in a sentence.
      settings: what differs from the league's scenario, given that.
      usual: who takes part unless methods are named.
      possible: who can take part at all, and `needs` why others cannot.
      rounds_factor: how many times as many global rounds are run, so that fast methods fill the time.
    """

    name: str
    title: str
    about: str
    settings: Callable[[Scenario], Mapping[str, Any]] = lambda base: {}
    usual: Callable[[Scenario], bool] = _everybody
    possible: Callable[[Scenario], bool] = _everybody
    needs: str = ""
    rounds_factor: int = 1

    def scenario(self, base: Scenario) -> Scenario:
        """The league's scenario in this division, before a method is chosen."""
        return base.with_values(self.settings(base))

    def horizon_s(self, base: Scenario) -> float:
        """Q E T_th: how long the paper's method takes for its rounds, which is what others get, too."""
        scenario = self.scenario(base)
        return base.rounds.global_rounds * max(base.edge_rounds_of) * deadline_s(scenario)


def deadline_s(scenario: Scenario) -> float:
    if isinstance(scenario.plan.deadline_s, str):
        raise UsageError(
            f"A league needs a deadline in seconds, got plan.deadline_s = {scenario.plan.deadline_s!r} in "
            f"{scenario.name}; give plan.deadline_s=0.03 or another scenario."
        )
    return scenario.plan.deadline_s


def _half_the_bits(base: Scenario) -> Mapping[str, Any]:
    """T_th′ = aW + (T_th − aW) / 2: half the bits in half the time to upload, so the same pressure to prune."""
    if base.clock.compute != "paper":
        raise UsageError(f"Division B is played by the paper's clock, got {base.clock.words}; leave it out.")
    plan = base.plan
    compute_s = plan.local_iterations * plan.cycles_per_weight * shape_of(base).num_weights / base.network.cpu_hz
    upload_s = deadline_s(base) - compute_s
    return {"plan.bits_per_weight": plan.bits_per_weight / 2, "plan.deadline_s": compute_s + upload_s / 2}


def _wide_model(base: Scenario) -> Mapping[str, Any]:
    """Time to compute and to upload grow with the weights, and so does the deadline."""
    wide = base.with_("model.name", "cifar-cnn")
    growth = shape_of(wide).num_weights / shape_of(base).num_weights
    return {"model.name": "cifar-cnn", "plan.deadline_s": deadline_s(base) * growth}


DIVISIONS: Mapping[str, Division] = {
    division.name: division
    for division in (
        Division(
            name="A",
            title="the paper's",
            about="64 bits per weight and the paper's deadline, which each method meets by its own knob, or misses.",
        ),
        Division(
            name="B",
            title="same bits per value",
            about="32 bits per weight in half the time to upload: the pressure of division A for whoever sends plain "
            "values; fp32 is now the method that does not prune.",
            settings=_half_the_bits,
            usual=_sends_values,
        ),
        Division(
            name="C",
            title="open",
            about="Nobody has to meet a deadline and all run on: what counts is accuracy at equal simulated seconds. "
            "Planners keep the deadline as their own knob, since without one they would fill any time.",
            rounds_factor=4,
        ),
        Division(
            name="D1",
            title="unlike edges",
            about="As A, but each edge's devices hold two classes of their own.",
            settings=lambda base: {"data.partition": "edge-non-iid", "data.classes_per_device": 2},
            possible=_has_edges,
            needs="without edges the data could not be dealt to them",
        ),
        Division(
            name="D2",
            title="unlike devices",
            about="As A, but every device holds two classes only.",
            settings=lambda base: {"data.partition": "shards", "data.classes_per_device": 2},
        ),
        Division(
            name="E",
            title="unreliable",
            about="As A, but three devices in ten are lost after planning, in every round.",
            settings=lambda base: {"events.dropout_probability": 0.3},
            usual=_chooses_devices,
        ),
        Division(
            name="F",
            title="unequal CPUs",
            about="As A, but CPUs from 0.5 to 3 GHz and five times the work per weight.",
            settings=lambda base: {
                "network.cpu_hz": 5e8,
                "network.cpu_hz_max": 3e9,
                "plan.cycles_per_weight": 100.0,
            },
        ),
        Division(
            name="G",
            title="wide model",
            about="As A with 64 hidden units in place of 8 and a deadline that grows alike, since with 8 units methods "
            "that remove whole ones are judged by the width of the model.",
            settings=_wide_model,
        ),
    )
}


def divisions_named(text: str) -> list[Division]:
    """`A`, `A,D2`, `D` for all that begin with it, or `all`."""
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    found: dict[str, Division] = {}
    for word in words:
        mine = {name: one for name, one in DIVISIONS.items() if word in (name, name[0], "ALL")}
        if not mine:
            raise UnknownName("division", word[:60], [*DIVISIONS, "all"])
        found |= mine
    if not found:
        raise UsageError(f"--division must name at least one of {', '.join(DIVISIONS)} or all, got {text!r}.")
    return [DIVISIONS[name] for name in DIVISIONS if name in found]


def letters(divisions: Sequence[Division]) -> str:
    return ",".join(division.name for division in divisions)
