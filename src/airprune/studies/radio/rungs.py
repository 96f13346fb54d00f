"""The rungs of the study: each a radio that is more real than the last, with the paper's devices, model and data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airprune.scenario import Scenario
from airprune.studies.campaign import WITHIN
from airprune.studies.league.league_run import charged
from airprune.studies.league.runs import MEASURED
from airprune.studies.league.schedule import SCHEDULES

SCHEDULE = SCHEDULES["default"]

# Settings that a league has tuned on the paper's radio, track A: docs/league-played.jsonl.
TUNED: Mapping[str, Mapping[str, Any]] = {
    "adaptive-pruning": {"train.learning_rate": 0.03, "plan.max_pruning_ratio": 0.9},
    "minmax-pruning": {"train.learning_rate": 0.1},
    "hierfavg": {"train.learning_rate": 0.045},
    "fp32": {"train.learning_rate": 0.045},
    "fixed-8": {"train.learning_rate": 0.045},
    "fixed-4": {"train.learning_rate": 0.03},
    "stc": {"train.learning_rate": 0.03},
    "adaptive-bits": {"train.learning_rate": 0.03, "plan.error_cost": 2.0},
    "drop-stragglers": {"train.learning_rate": 0.03},
}
PAPERS, FAIR, WHOLE, DROPPING = "adaptive-pruning", "minmax-pruning", "hierfavg", "drop-stragglers"
# Its plans follow from what it has learned, so that it is trained on every rung.
LEARNS_PLANS = ("adaptive-bits",)

# csi_correlation at which the gain that a plan counts on is wrong by so many dB (root mean square), with Rayleigh
# fading and one antenna. Without any knowledge it is 6.1 dB.
CORRELATION_OF_DB: Mapping[int, float] = {1: 0.998, 2: 0.988, 3: 0.965, 4: 0.916, 6: 0.5}

_THERMAL = {"radio.noise": "thermal"}
_MCS = {**_THERMAL, "radio.rate": "nr-mcs"}
_FADING = {**_MCS, "radio.fading": "rayleigh"}
_REUSE = {"radio.reuse": 1}
_LINKS = {"radio.station_power_dbm": 46.0, "topology.hierarchical.backhaul_bps": 1e8}
_CSI = {**_FADING, "radio.csi_correlation": CORRELATION_OF_DB[3]}
_ANTENNAS = {**_FADING, **_REUSE, **_LINKS, "radio.num_antennas": 8}


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A radio.

    Attributes:
      title: for tables.
      about: what it adds, in a sentence.
      settings: its changes of the paper's radio.
      pressed_as: the rung whose deadline it has; empty: its own.
      stretch: times that deadline.
    """

    name: str
    title: str
    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    pressed_as: str = ""
    stretch: float = 1.0


RUNGS: Mapping[str, Rung] = {
    rung.name: rung
    for rung in (
        Rung(name="paper", title="paper", about="Noise of −110 dBm, Shannon's rate, no fading, bandwidth of its own."),
        Rung(
            name="thermal",
            title="+ thermal noise",
            about="Noise of −94 dBm: k T B and a figure of 7 dB.",
            settings=_THERMAL,
        ),
        Rung(name="mcs", title="+ NR MCS", about="Rates of 5G NR's MCS up to 256-QAM, with HARQ.", settings=_MCS),
        Rung(
            name="fading",
            title="+ Rayleigh fading",
            about="Fading with one antenna, new in every edge round, known to plans.",
            settings=_FADING,
        ),
        Rung(
            name="csi",
            title="fading, CSI error 3 dB",
            about="Plans count on the mean of a gain that they know with an error of 3 dB.",
            settings=_CSI,
            pressed_as="fading",
        ),
        Rung(
            name="promise",
            title="the same, plan.on_time",
            about="The same with plan.on_time = 0.95.",
            settings={**_CSI, "plan.on_time": 0.95},
            pressed_as="fading",
        ),
        Rung(
            name="interference",
            title="fading + interference",
            about="All edges use the same bandwidth (reuse 1); plans know the fading.",
            settings={**_FADING, **_REUSE},
        ),
        Rung(
            name="links",
            title="+ downlink, backhaul",
            about="Stations send with 46 dBm, and 100 Mbit/s between edges and cloud in place of 1 Gbit/s.",
            settings={**_FADING, **_REUSE, **_LINKS},
            pressed_as="interference",
        ),
        Rung(
            name="antennas",
            title="+ 8 antennas",
            about="Stations with eight antennas in place of one.",
            settings=_ANTENNAS,
        ),
        Rung(
            name="urban",
            title="+ street canyon",
            about="Path loss, line of sight and shadowing of TR 38.901 UMi at 3.5 GHz, not the log-distance law.",
            settings={**_ANTENNAS, "radio.path_loss": "umi"},
        ),
    )
}


def scenario_on(settings: Mapping[str, Any], method: str, seed: int, deadline_s: float | None = None) -> Scenario:
    """Returns a method's run on a radio, with the settings tuned on the paper's and every link charged.

    Args:
      settings: of the radio.
      deadline_s: None: the paper's.
    """
    deadline = {} if deadline_s is None or method in LEARNS_PLANS else {"plan.deadline_s": deadline_s}
    scenario = SCHEDULE.scenario().with_("method", method).with_values({**TUNED[method], **MEASURED})
    return charged(scenario).with_values({**settings, **deadline, **WITHIN, "seed": seed})


def flat_scenario(settings: Mapping[str, Any], seed: int) -> Scenario:
    """Returns the run without edges and without pruning on a radio: one cell, which nothing interferes with."""
    mine = {key: value for key, value in settings.items() if key != "radio.reuse" and not key.startswith("topology.")}
    scenario = SCHEDULE.scenario().with_("method", "fedavg")
    return charged(scenario).with_values({**mine, **WITHIN, "seed": seed})
