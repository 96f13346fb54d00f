"""One run of a league: what it is for, and every link charged.

A run's folder is named by the hash of its scenario, so tracks, tuning runs and claims share what they have in common,
and a league that grows repeats nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from airprune.scenario import Scenario
from airprune.studies.campaign import WITHIN, CampaignRun

# The rate of every link above the edges.
BACKHAUL_BPS = 1e9


class Purpose(StrEnum):
    """The use of a run."""

    TUNING = "tuning"
    RANKED = "ranked"
    UNTUNED = "untuned"
    CLAIM = "claim"
    ABLATION = "ablation"


@dataclass(frozen=True, kw_only=True)
class LeagueRun(CampaignRun):
    """A run and its use.

    Attributes:
      track: name of the track whose table it is for; empty for a claim.
      method: the row of that table.
      knobs: its tuned values; empty if it is untuned.
    """

    purpose: Purpose = Purpose.CLAIM
    track: str = ""
    method: str = ""
    knobs: Mapping[str, Any] = field(default_factory=dict)


def charged(scenario: Scenario) -> Scenario:
    """Returns the scenario with nothing free: broadcast downlinks, masks and probes, links above the edges.

    Those are of 1 Gbit/s unless a rate is set.
    """
    values = scenario.to_dict()
    name = scenario.topology.name
    changes: dict[str, Any] = {} if scenario.masking.charged else {"masking.charged": True}
    if scenario.radio.downlink == "none":
        changes["radio.downlink"] = "broadcast"
    options = values["topology"].get(name) or {}
    has_rates = isinstance(rates := options.get("rate_bps"), list) and bool(rates)  # of each level of a tree
    if options.get("backhaul_bps", BACKHAUL_BPS) is None and not has_rates:
        changes[f"topology.{name}.backhaul_bps"] = BACKHAUL_BPS
    return scenario.with_values(changes) if changes else scenario


def league_run(
    label: str,
    scenario: Scenario,
    seed: int,
    *,
    purpose: Purpose = Purpose.CLAIM,
    track: str = "",
    method: str = "",
    knobs: Mapping[str, Any] | None = None,
) -> LeagueRun:
    """Returns the run of this scenario for this seed, by one process, with every link charged."""
    mine = charged(scenario).with_values({**WITHIN, "seed": seed})
    return LeagueRun(
        label=f"{label}, seed {seed}",
        scenario=mine,
        folder_name=mine.hash[:16],
        purpose=purpose,
        track=track,
        method=method,
        knobs=knobs or {},
    )
