"""Claims judged by runs of this league's scenario. Directions count, never published numbers.

A claim names the methods it needs, and is skipped where one of them is not registered. `sources` lists the claims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airprune.errors import AirpruneError
from airprune.methods import METHODS
from airprune.scenario import Scenario
from airprune.studies.campaign import CampaignRun
from airprune.studies.claims import Claim, Judgement, Verdict
from airprune.studies.league.finished import FinishedRun
from airprune.studies.league.judges import Arms
from airprune.studies.league.runs import MEASURED, RunStore, league_run

Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LeagueClaim(Claim[[Arms]]):
    """A statement of a method's source, judged from the runs of all arms.

    Attributes:
      needs: methods without which it cannot be judged.
      arms: the compared settings on the league's scenario, by name.
    """

    needs: tuple[str, ...]
    arms: Callable[[Scenario], Mapping[str, Settings]]

    def scenarios(self, base: Scenario) -> dict[str, Scenario]:
        return {name: base.with_values(settings) for name, settings in self.arms(base).items()}


def applicable(found: Sequence[LeagueClaim], base: Scenario) -> list[LeagueClaim]:
    """Returns the claims whose methods are registered and whose arms are valid on this scenario."""
    return [claim for claim in found if all(name in METHODS for name in claim.needs) and _fits(claim, base)]


def _fits(claim: LeagueClaim, base: Scenario) -> bool:
    try:
        claim.scenarios(base)
    except AirpruneError:
        return False
    return True


def runs_for(found: Sequence[LeagueClaim], base: Scenario, seeds: Sequence[int]) -> list[CampaignRun]:
    """Returns all runs that the claims are judged by."""
    return [run for claim in found for runs in _by_arm(claim, base, seeds).values() for run in runs]


def _by_arm(claim: LeagueClaim, base: Scenario, seeds: Sequence[int]) -> dict[str, list[CampaignRun]]:
    return {
        name: [league_run(f"{claim.name} ({name})", scenario.with_values(MEASURED), seed) for seed in seeds]
        for name, scenario in claim.scenarios(base).items()
    }


def verdicts(
    found: Sequence[LeagueClaim], base: Scenario, seeds: Sequence[int], store: RunStore
) -> list[dict[str, Any]]:
    """Returns each claim with its judgement, as plain data."""
    return [_verdict(claim, _by_arm(claim, base, seeds), store) for claim in found]


def _verdict(claim: LeagueClaim, runs: Mapping[str, Sequence[CampaignRun]], store: RunStore) -> dict[str, Any]:
    finished = {name: {run.scenario.seed: store.finished(run) for run in mine} for name, mine in runs.items()}
    return {"name": claim.name, "where": claim.where, "text": claim.text, **judged(claim, finished).as_json()}


def judged(claim: LeagueClaim, finished: Mapping[str, Mapping[int, FinishedRun | None]]) -> Judgement:
    """Judges a claim on the seeds that every arm has finished."""
    shared = [seed for seed in next(iter(finished.values())) if all(mine.get(seed) for mine in finished.values())]
    arms = {name: {seed: run for seed in shared if (run := mine[seed]) is not None} for name, mine in finished.items()}
    if not shared or any(math.isnan(run.accuracy) for mine in arms.values() for run in mine.values()):
        return Judgement(Verdict.UNDECIDED, "Not all of its runs have finished with a tested model.")
    return claim.judge(arms)
