"""Claims judged by runs of this league's scenario. Directions count, never published numbers.

A claim names the recipes it needs, and is left out where one of them is not registered: a new method brings its claims
to life by its name alone. They are listed in `sources`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airprune.errors import AirpruneError
from airprune.methods import METHODS
from airprune.scenario import Scenario
from airprune.studies.claims import Claim, Judgement, Verdict
from airprune.studies.league.judges import Arms
from airprune.studies.league.measured import Played
from airprune.studies.league.playing import MEASURED, LeagueRun, RunStore, match

Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LeagueClaim(Claim[[Arms]]):
    """A statement of a method's source, judged from the runs of all arms.

    Attributes:
      needs: recipes without which it cannot be judged.
      arms: what is compared, by name: settings on the league's scenario.
    """

    needs: tuple[str, ...]
    arms: Callable[[Scenario], Mapping[str, Settings]]

    def scenarios(self, base: Scenario) -> dict[str, Scenario]:
        return {name: base.with_values(settings) for name, settings in self.arms(base).items()}


def applicable(found: Sequence[LeagueClaim], base: Scenario) -> list[LeagueClaim]:
    """Those whose recipes are registered and whose arms this scenario can be."""
    return [claim for claim in found if all(name in METHODS for name in claim.needs) and _fits(claim, base)]


def _fits(claim: LeagueClaim, base: Scenario) -> bool:
    try:
        claim.scenarios(base)
    except AirpruneError:
        return False
    return True


def matches(found: Sequence[LeagueClaim], base: Scenario, seeds: Sequence[int]) -> list[LeagueRun]:
    """All runs that the claims rest on."""
    return [run for claim in found for runs in _by_arm(claim, base, seeds).values() for run in runs]


def _by_arm(claim: LeagueClaim, base: Scenario, seeds: Sequence[int]) -> dict[str, list[LeagueRun]]:
    return {
        name: [match(scenario.with_values(MEASURED), seed, claim=claim.name, arm=f"({name})") for seed in seeds]
        for name, scenario in claim.scenarios(base).items()
    }


def verdicts(
    found: Sequence[LeagueClaim], base: Scenario, seeds: Sequence[int], pitch: RunStore
) -> list[dict[str, Any]]:
    """Each claim with what was found, as plain data."""
    return [_verdict(claim, _by_arm(claim, base, seeds), pitch) for claim in found]


def _verdict(claim: LeagueClaim, runs: Mapping[str, Sequence[LeagueRun]], pitch: RunStore) -> dict[str, Any]:
    played = {name: {run.scenario.seed: pitch.played(run) for run in mine} for name, mine in runs.items()}
    return {"name": claim.name, "where": claim.where, "text": claim.text, **judged(claim, played).as_json()}


def judged(claim: LeagueClaim, played: Mapping[str, Mapping[int, Played | None]]) -> Judgement:
    """On the seeds that every arm has finished."""
    shared = [seed for seed in next(iter(played.values())) if all(mine.get(seed) for mine in played.values())]
    arms = {name: {seed: run for seed in shared if (run := mine[seed]) is not None} for name, mine in played.items()}
    if not shared or any(math.isnan(run.accuracy) for mine in arms.values() for run in mine.values()):
        return Judgement(Verdict.UNDECIDED, "Not all of its runs have finished with a tested model.")
    return claim.judge(arms)
