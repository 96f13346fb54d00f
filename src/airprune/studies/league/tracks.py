"""The tracks of the league. In a single table one setting, the bits per weight, would decide the ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airprune.errors import UnknownName, UsageError
from airprune.scenario import Scenario
from airprune.scenario.model_shape import shape_of

# The paper's own deadlines: 350 ms on a network without edges, where all devices share the bandwidth, against 30 ms.
FLAT_DEADLINE = 350.0 / 30.0


def _any(scenario: Scenario) -> bool:
    return True


def sends_codes(scenario: Scenario) -> bool:
    """True if updates are compressed, so that the method itself chooses the bits per weight."""
    compression = scenario.to_dict()["compression"]
    return bool(compression["name"] != "cast" or compression["cast"]["format"] != "exact")


def _sends_values(scenario: Scenario) -> bool:
    return not sends_codes(scenario)


def _chooses_devices(scenario: Scenario) -> bool:
    """True for methods that deal with lost devices, and for the plainest one that does not."""
    return scenario.selection.name != "everyone" or scenario.method in ("hierfavg", "hybridfl")


def _has_edges(scenario: Scenario) -> bool:
    return not scenario.is_flat


@dataclass(frozen=True, kw_only=True)
class Track:
    """One table of the league.

    Attributes:
      name: a letter; tracks of one letter and different numbers are chosen together.
      about: its particulars in a sentence.
      settings: changes of the league's scenario, given that scenario.
      usual: True for methods that take part unless methods are named.
      possible: True for methods that can take part at all; `needs` says why others cannot.
      rounds_factor: how many times as many global rounds are run, so that fast methods fill the time.
    """

    name: str
    title: str
    about: str
    settings: Callable[[Scenario], Mapping[str, Any]] = lambda base: {}
    usual: Callable[[Scenario], bool] = _any
    possible: Callable[[Scenario], bool] = _any
    needs: str = ""
    rounds_factor: int = 1

    def scenario(self, base: Scenario) -> Scenario:
        """Returns the league's scenario in this track, before a method is chosen."""
        return base.with_values(self.settings(base))

    def horizon_s(self, base: Scenario) -> float:
        """Returns Q E T_th, the time that the paper's method takes for its rounds; other methods get the same time."""
        scenario = self.scenario(base)
        return base.rounds.global_rounds * max(base.edge_rounds_of) * deadline_s(scenario)


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


def _wide_model(base: Scenario) -> Mapping[str, Any]:
    """Returns the wide model with a deadline that grows with the number of weights, as compute and upload time do."""
    wide = base.with_("model.name", "cifar-cnn")
    growth = shape_of(wide).num_weights / shape_of(base).num_weights
    return {"model.name": "cifar-cnn", "plan.deadline_s": deadline_s(base) * growth}


TRACKS: Mapping[str, Track] = {
    track.name: track
    for track in (
        Track(
            name="A",
            title="the paper's",
            about="64 bits per weight and the paper's deadline, which each method meets by its own means, or misses.",
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
            name="E",
            title="unreliable",
            about="As A, but three devices in ten are lost after planning, in every round.",
            settings=lambda base: {"events.dropout_probability": 0.3},
            usual=_chooses_devices,
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
            settings=_wide_model,
        ),
    )
}


def tracks_named(text: str) -> list[Track]:
    """Returns the tracks that a text names: `A`, `A,D2`, `D` for all that begin with it, or `all`."""
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    found: dict[str, Track] = {}
    for word in words:
        mine = {name: one for name, one in TRACKS.items() if word in (name, name[0], "ALL")}
        if not mine:
            raise UnknownName("track", word[:60], [*TRACKS, "all"])
        found |= mine
    if not found:
        raise UsageError(f"--track must name at least one of {', '.join(TRACKS)} or all, got {text!r}.")
    return [TRACKS[name] for name in TRACKS if name in found]
