"""The runs of a league, as one campaign: side by side on cores or a cluster, each once, resumable.

A run's folder is named by the hash of its scenario, so divisions, trials and claims share what they have in common, and
a league that grows repeats nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airprune.methods.compression.base import Wire
from airprune.methods.registration import files_used_by
from airprune.rounds.cloud import Backhaul
from airprune.rounds.method import Method
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.scenario.model_shape import shape_of
from airprune.studies.campaign import WITHIN, Campaign, CampaignRun
from airprune.studies.league import tuning
from airprune.studies.league.divisions import Division
from airprune.studies.league.ledger import Line
from airprune.studies.league.lineup import Entrant
from airprune.studies.league.measured import Played, played
from airprune.studies.league.tuning import Trial

# What every run that counts records; claims too, so that they share runs with the tables.
MEASURED = {"diagnostics.sub_models": True}


LeagueRun = CampaignRun


def match(scenario: Scenario, seed: int, **words: str) -> LeagueRun:
    """A run of this scenario by one process, for this seed; `words` for people: division, method, what was tried."""
    mine = scenario.with_values({**WITHIN, "seed": seed})
    return LeagueRun(label=f"{' '.join(words.values())}, seed {seed}", scenario=mine, folder_name=mine.hash[:16])


def trial_matches(division: Division, entrant: Entrant) -> list[tuple[Trial, list[LeagueRun]]]:
    """Every trial of an entrant, over the seeds that are for trials only."""
    found = []
    for trial in tuning.trials(entrant.scenario):
        words = {"division": division.name, "method": entrant.name, "trial": f"trial {trial.words}"}
        scenario = trial.scenario(entrant.scenario)
        found.append((trial, [match(scenario, seed, **words) for seed in tuning.SEEDS]))
    return found


def matches(division: Division, entrant: Entrant, trial: Trial | None, seeds: Sequence[int]) -> list[LeagueRun]:
    """The runs that count, with the knobs of a trial, or untuned."""
    knobs = {} if trial is None else trial.knobs
    scenario = entrant.scenario.with_values({**knobs, **MEASURED})
    return [match(scenario, seed, division=division.name, method=entrant.name) for seed in seeds]


def backhaul_bits(scenario: Scenario) -> float:
    """Of a whole model on a link above the edges, and of what the objective sends beside it."""
    shape, method, value_bits = shape_of(scenario), Method.of(scenario), scenario.plan.bits_per_weight
    beside = method.objective.upload_bits(shape, value_bits)
    wire = Wire.of(shape, value_bits=value_bits)
    return Backhaul(
        compression=method.backhaul, wire=wire, shape=shape, seed=scenario.seed, extra_bits=float(beside)
    ).bits


class RunStore:
    """The folder of all runs, and what is known of runs that are not there.

    Attributes:
      recorded: finished runs by folder name. A folder that is there counts for more.
    """

    def __init__(self, path: Path, engine: Any, recorded: Mapping[str, Line] | None = None) -> None:
        self.path = path.absolute()
        self.engine = engine
        self.recorded = recorded or {}
        self._backhaul_bits: dict[str, float] = {}

    def campaign_of(self, runs: Iterable[LeagueRun]) -> Campaign:
        """Those runs that are not recorded; each once, however many tables need it."""
        once = {run.folder_name: run for run in runs if self._recorded(run) is None}
        return Campaign(tuple(once.values()), self.path, self.engine)

    def played(self, run: LeagueRun) -> Played | None:
        """What is there of a run; None unless it is finished."""
        line = self.line(run)
        return None if line is None else line.played

    def line(self, run: LeagueRun) -> Line | None:
        """The same for the ledger."""
        recorded = self._recorded(run)
        folder = RunFolder.below(self.path, run.folder_name)
        if recorded is not None or not folder.has_finished(run.scenario):
            return recorded
        deadline_s = run.scenario.plan.deadline_s
        found = played(
            folder,
            deadline_s=float("inf") if isinstance(deadline_s, str) else deadline_s,
            model_bits=self._model_bits(run.scenario),
            has_backhaul=not run.scenario.is_flat,
        )
        return Line.of(run=run.folder_name, label=run.label, environment=folder.environment(), played=found)

    def _recorded(self, run: LeagueRun) -> Line | None:
        is_here = os.path.lexists(self.path / run.folder_name)
        return None if is_here or files_used_by(run.scenario) else self.recorded.get(run.folder_name)

    def _model_bits(self, scenario: Scenario) -> float:
        """What an edge sends to the cloud; the same for all seeds."""
        key = scenario.with_("seed", 0).hash
        if key not in self._backhaul_bits:
            self._backhaul_bits[key] = backhaul_bits(scenario)
        return self._backhaul_bits[key]

    def choice(self, division: Division, entrant: Entrant) -> Trial | None:
        """The best trial of those that have been run; None if there is none."""
        found = []
        for trial, runs in trial_matches(division, entrant):
            ended = [self.played(run) for run in runs]
            found.append((trial, [None if one is None else one.accuracy for one in ended]))
        return tuning.chosen(found)
