"""The tracks of the league. In a single table one setting, the bits per weight, would decide the ranks.

All methods take part in track A, the paper's scene; in the others those of `REPRESENTATIVE`, unless methods are named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airprune.errors import UnknownName, UsageError
from airprune.scenario import Scenario
from airprune.scenario.model_shape import shape_of
from airprune.scenario.presets import presets

# The paper's own deadlines: 350 ms on a network without edges, where all devices share the bandwidth, against 30 ms.
FLAT_DEADLINE = 350.0 / 30.0
# The preset that the presets of scenes change; a league's schedule has its rounds and samples.
_SCHEDULED = "demo"
# Of a timed run: more than the shortest rounds need.
_MOST_ROUNDS = 10_000

# The methods of all tracks but the first, and why each is there.
REPRESENTATIVE: Mapping[str, str] = {
    "adaptive-pruning": "the paper's method",
    "minmax-pruning": "the paper's masks, shares that equalise pruning",
    "variance": "the paper's masks, shares that equalise the devices' weight in the average",
    "frozen-pruning": "the paper's plan, weights kept in place of zeroed",
    "hierfavg": "the plain baseline: no pruning, 64 bits",
    "fp32": "no pruning, 32 bits",
    "bf16": "no pruning, 16 bits",
    "fixed-8": "no pruning, 8 bits",
    "fixed-4": "no pruning, 4 bits",
    "sign": "1 bit with error feedback",
    "topk-1": "1 % of the values with error feedback",
    "stc": "sparse ternary compression at 1/32",
    "adaptive-bits": "compression levels chosen by the deadline",
    "snip": "one mask for all, chosen once",
    "prunefl": "one mask for all, chosen again and again",
    "heterofl": "sub-models by width",
    "fjord": "ordered dropout",
    "feddrop": "random sub-models",
    "fedprox": "a proximal term",
    "scaffold": "control variates",
    "fedavgm": "server momentum",
    "fednova": "normalised averaging",
    "oort": "client selection by utility and time",
    "random": "client selection at random",
    "drop-stragglers": "no pruning; devices that would miss the deadline do not take part",
}

# The methods of the tracks on a device's clock, where compute time decides and fewer bits hardly count.
UNEQUAL_WORK: Mapping[str, str] = {
    "adaptive-pruning": "the paper's method",
    "minmax-pruning": "the paper's masks, shares that equalise pruning",
    "hierfavg": "the plain baseline: no pruning, 64 bits, all wait for the slowest",
    "fp32": "no pruning, 32 bits",
    "bf16": "no pruning, 16 bits",
    "fixed-8": "no pruning, 8 bits",
    "stc": "sparse ternary compression at 1/32",
    "adaptive-bits": "compression levels chosen by the deadline",
    "fewer-steps": "one local pass for all",
    "drop-stragglers": "devices that would miss the deadline do not take part",
    "random": "client selection at random",
    "oort": "client selection by utility and time",
    "heterofl": "sub-models by width",
    "fjord": "ordered dropout",
    "fedrolex": "sub-models by width, windows that move",
    "fednova": "normalised averaging",
    "fedprox": "a proximal term, equal work",
    "steps-that-fit": "whole models, as many local steps as fit the deadline",
    "fedprox-steps": "the same with a proximal term",
    "cocofl": "some layers frozen, at random among those that fit",
    "timelyfl": "upper layers only on slow devices, a round as long as the k-th device needs",
    "semi-sync": "edges close after three of five",
    "fedbuff": "asynchronous edges with a buffer",
    "adaptive-work": "trained parts, local steps, bits, shares and deadline together",
}

# The methods of the track with attackers: what contains them, beside what does not.
CONTAINING: Mapping[str, str] = {
    "adaptive-pruning": "the paper's method: means, with pruning",
    "hierfavg": "the plain baseline: means, without pruning",
    "norm-clip": "means of clipped updates",
    "trimmed-mean": "coordinate-wise trimmed mean",
    "median": "coordinate-wise median",
    "krum": "the most central update",
    "multi-krum": "the mean of the most central updates",
    "geometric-median": "the centre by the sum of distances",
    "sign-sgd": "a majority vote of signs bounds every device's influence",
    "hier-sign": "the same at every level",
}


class By(StrEnum):
    """The point at which accuracies are compared."""

    TIME = "time"
    """The seconds that the paper's method takes for its rounds."""
    ROUNDS = "rounds"
    """All rounds."""


class Tuned(StrEnum):
    """Ways to tune a track's methods."""

    RACE = "race"
    """By the whole race."""
    RATES = "rates"
    """By three learning rates around that of the first track, whose main setting is kept; else by the whole race."""
    KEPT = "kept"
    """As the first track has tuned them; else by the whole race."""


def _any(scenario: Scenario) -> bool:
    return True


def sends_codes(scenario: Scenario) -> bool:
    """True if updates are compressed, so that the method itself chooses the bits per weight."""
    compression = scenario.to_dict()["compression"]
    return bool(compression["name"] != "cast" or compression["cast"]["format"] != "exact")


def is_representative(scenario: Scenario) -> bool:
    return scenario.method in REPRESENTATIVE


def _plans_work(scenario: Scenario) -> bool:
    return scenario.method in UNEQUAL_WORK


def _contains_attackers(scenario: Scenario) -> bool:
    return scenario.method in CONTAINING


def _sends_values(scenario: Scenario) -> bool:
    return is_representative(scenario) and not sends_codes(scenario)


def _has_edges(scenario: Scenario) -> bool:
    return not scenario.is_flat


@dataclass(frozen=True, kw_only=True)
class Track:
    """One table of the league.

    Attributes:
      name: a letter; tracks of one letter and different numbers are chosen together.
      about: its particulars in a sentence.
      settings: changes of the league's scenario, given that scenario; they come after those of the preset.
      preset: the scene as a preset, whose changes apply to the league's scenario.
      usual: True for methods that take part unless methods are named.
      possible: True for methods that can take part at all; `needs` says why others cannot.
      rounds_factor: how many times as many global rounds are run, so that fast methods fill the time.
      by: the comparison that orders the table.
      is_timed: True if a run lasts not a number of rounds but as long as the league's rounds take at the deadline, so
        that methods with shorter rounds make more of them. Deadlines are then tuned in place of the main setting.
      tuned: how its methods are tuned.
    """

    name: str
    title: str
    about: str
    settings: Callable[[Scenario], Mapping[str, Any]] = lambda base: {}
    preset: str = ""
    usual: Callable[[Scenario], bool] = is_representative
    possible: Callable[[Scenario], bool] = _any
    needs: str = ""
    rounds_factor: int = 1
    by: By = By.ROUNDS
    is_timed: bool = False
    tuned: Tuned = Tuned.RATES

    @property
    def exists(self) -> bool:
        """False if its preset is not there."""
        return not self.preset or self.preset in presets()

    def scenario(self, base: Scenario) -> Scenario:
        """Returns the league's scenario in this track, before a method is chosen."""
        changed = base
        if self.preset:
            scene = Scenario.preset(self.preset)
            changed = base.with_values(
                {key: value for key, _, value in Scenario.preset(_SCHEDULED).diff(scene) if key != "name"}
            )
        changed = changed.with_values(self.settings(changed))
        if not self.is_timed:
            return changed.with_("rounds.global_rounds", changed.rounds.global_rounds * self.rounds_factor)
        time_s = changed.rounds.global_rounds * max(changed.edge_rounds_of) * deadline_s(changed)
        return changed.with_values({"stop.time_s": time_s, "rounds.global_rounds": _MOST_ROUNDS})

    def time_s(self, base: Scenario) -> float | None:
        """Returns the compared time of a timed track; None for others, which compare after the paper's rounds."""
        return self.scenario(base).stop.time_s if self.is_timed else None


def deadline_s(scenario: Scenario) -> float:
    """Returns the deadline; refuses scenarios without a fixed one."""
    if isinstance(scenario.plan.deadline_s, str):
        raise UsageError(
            f"A league needs a deadline in seconds, got plan.deadline_s = {scenario.plan.deadline_s!r} in "
            f"{scenario.name}; give plan.deadline_s=0.03 or another scenario."
        )
    return scenario.plan.deadline_s


def _half_the_bits(base: Scenario) -> Mapping[str, Any]:
    """Returns T_th′ = aW + (T_th − aW) / 2: half the bits in half the time to upload, so the same need to prune."""
    if base.clock.compute != "paper":
        raise UsageError(f"Track B needs the paper's clock, got {base.clock.words}; choose other tracks.")
    plan = base.plan
    compute_s = plan.local_iterations * plan.cycles_per_weight * shape_of(base).num_weights / base.network.cpu_hz
    upload_s = deadline_s(base) - compute_s
    return {"plan.bits_per_weight": plan.bits_per_weight / 2, "plan.deadline_s": compute_s + upload_s / 2}


def _table_i(base: Scenario) -> Mapping[str, Any]:
    """Returns the rounds, samples and minibatches of Table I."""
    paper = Scenario.preset("paper-converged")
    return {
        "data.train_samples": paper.data.train_samples,
        "data.test_samples": paper.data.test_samples,
        "train.batch_size": paper.train.batch_size,
        "rounds.global_rounds": paper.rounds.global_rounds,
        "rounds.edge_rounds": paper.rounds.edge_rounds,
    }


def _cpus() -> Mapping[str, Any]:
    """Returns the CPUs, links and clock of preset `device-cpu`."""
    scene = Scenario.preset("device-cpu")
    sections = ("network.", "radio.", "topology.", "clock.")
    return {key: value for key, _, value in Scenario.preset(_SCHEDULED).diff(scene) if key.startswith(sections)}


_ON_DEVICES: Mapping[str, Any] = {"usual": _plans_work, "is_timed": True, "by": By.TIME}

TRACKS: Mapping[str, Track] = {
    track.name: track
    for track in (
        Track(
            name="A",
            title="the paper's",
            about="64 bits per weight and the paper's deadline, which each method meets by its own means, or misses.",
            usual=_any,
            tuned=Tuned.RACE,
        ),
        Track(
            name="B",
            title="same bits per value",
            about="32 bits per weight in half the time to upload: the same need to prune as in track A for methods "
            "that send plain values; fp32 is now the method that does not prune.",
            settings=_half_the_bits,
            usual=_sends_values,
        ),
        Track(
            name="C",
            title="open",
            about="No method has to meet a deadline, and all run for more rounds: accuracy is compared at equal "
            "simulated seconds. Planners keep the deadline as their own setting, since without one they would fill any "
            "time.",
            rounds_factor=4,
            by=By.TIME,
            tuned=Tuned.KEPT,
        ),
        Track(
            name="D1",
            title="non-IID edges",
            about="As A, but each edge's devices hold two classes of their own.",
            settings=lambda base: {"data.partition": "edge-non-iid", "data.classes_per_device": 2},
            possible=_has_edges,
            needs="without edges the data cannot be partitioned by edge",
        ),
        Track(
            name="D2",
            title="non-IID devices",
            about="As A, but every device holds two classes only.",
            settings=lambda base: {"data.partition": "shards", "data.classes_per_device": 2},
        ),
        Track(
            name="D3",
            title="Dirichlet 0.1",
            about="As A, but every device mixes the classes by Dirichlet(0.1), mostly one or two of them.",
            preset="dirichlet-01",
        ),
        Track(
            name="D4",
            title="Dirichlet 0.5",
            about="As A, but every device mixes the classes by Dirichlet(0.5).",
            preset="dirichlet-05",
        ),
        Track(
            name="E",
            title="unreliable",
            about="As A, but three devices in ten are lost after planning, in every round.",
            preset="unreliable",
        ),
        Track(
            name="F",
            title="unequal CPUs",
            about="As A, but CPUs from 0.5 to 3 GHz and five times the work per weight.",
            settings=lambda base: {
                "network.cpu_hz": 5e8,
                "network.cpu_hz_max": 3e9,
                "plan.cycles_per_weight": 100.0,
            },
        ),
        Track(
            name="G",
            title="wide model",
            about="As A with 64 hidden units in place of 8 and a deadline that grows in proportion, since with 8 units "
            "the width of the model decides how well methods do that remove whole units.",
            preset="wide",
        ),
        Track(
            name="H",
            title="CIFAR-10",
            about="ResNet-8 on CIFAR-10, with a deadline that grows with the number of weights.",
            preset="cifar",
        ),
        Track(
            name="I",
            title="text",
            about="A character model on Shakespeare: every device is a role.",
            preset="text",
        ),
        Track(
            name="J1",
            title="device clock, unequal CPUs",
            about="As A, but compute time from counted FLOPs on CPUs of 0.5 to 3 GHz. All methods run for the time of "
            "12 rounds at a deadline that the slowest device meets without pruning.",
            preset="device-cpu",
            **_ON_DEVICES,
        ),
        Track(
            name="J2",
            title="device clock, accelerators",
            about="As J1 on accelerators of 70 to 500 GFLOP/s, where the uplink matters again.",
            preset="accelerators",
            **_ON_DEVICES,
        ),
        Track(
            name="J3",
            title="device clock, Dirichlet 0.5",
            about="As J1, and every device mixes the classes by Dirichlet(0.5).",
            preset="device-cpu",
            settings=lambda base: {"data.partition": "dirichlet", "data.alpha": 0.5},
            **_ON_DEVICES,
        ),
        Track(
            name="J4",
            title="device clock, Dirichlet 0.1",
            about="As J1, and every device mixes the classes by Dirichlet(0.1).",
            preset="device-cpu",
            settings=lambda base: {"data.partition": "dirichlet", "data.alpha": 0.1},
            **_ON_DEVICES,
        ),
        Track(
            name="J5",
            title="device clock, non-IID edges",
            about="As J1, and each edge's devices hold two classes of their own.",
            preset="device-cpu",
            settings=lambda base: {"data.partition": "edge-non-iid", "data.classes_per_device": 2},
            possible=_has_edges,
            needs="without edges the data cannot be partitioned by edge",
            **_ON_DEVICES,
        ),
        Track(
            name="J6",
            title="device clock, boards",
            about="As J1 on Raspberry Pi 3B+, 4 and 5 boards in turn.",
            preset="boards",
            **_ON_DEVICES,
        ),
        Track(
            name="J7",
            title="device clock, wide model",
            about="As J1 with 64 hidden units in place of 8.",
            preset="device-cpu",
            settings=lambda base: {"model.name": "cifar-cnn", "plan.deadline_s": 2.67},
            **_ON_DEVICES,
        ),
        Track(
            name="J8",
            title="device clock, CIFAR-10",
            about="As J1 with ResNet-8 on CIFAR-10.",
            preset="cifar",
            settings=lambda base: {**_cpus(), "plan.deadline_s": 7.6},
            **_ON_DEVICES,
        ),
        Track(
            name="K",
            title="full schedule",
            about="As A with the rounds, samples and minibatches of Table I. Tuned values are those of A, since a run "
            "takes forty times as long.",
            settings=_table_i,
            tuned=Tuned.KEPT,
        ),
        Track(
            name="L",
            title="hostile",
            about="As A, but one device in five sends its update reversed, in every round.",
            preset="hostile",
            usual=_contains_attackers,
        ),
    )
}


def tracks_named(text: str) -> list[Track]:
    """Returns the tracks in the order that a text names them: `A`, `A,D2`, `D` for D1 to D4, a preset, or `all`."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    found: dict[str, Track] = {}
    for word in words:
        mine = {
            name: one for name, one in TRACKS.items() if word.upper() in (name, name[0], "ALL") or word == one.preset
        }
        if not mine:
            raise UnknownName(
                "track", word[:60], [*TRACKS, *(one.preset for one in TRACKS.values() if one.preset), "all"]
            )
        if missing := [one for one in mine.values() if not one.exists and word.upper() != "ALL"]:
            raise UsageError(f"Track {missing[0].name} needs the preset {missing[0].preset}, which is not there.")
        found |= {name: one for name, one in mine.items() if one.exists}
    if not found:
        raise UsageError(f"--track must name at least one of {', '.join(TRACKS)} or all, got {text!r}.")
    return list(found.values())
