"""The runs of a league, as one campaign: side by side on cores or a cluster, each once, resumable.

A run's folder is named by the hash of its scenario, so tracks, tuning runs and claims share what they have in common,
and a league that grows repeats nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from airprune.methods.compression.base import Wire
from airprune.methods.registration import files_used_by
from airprune.rounds.cloud import Backhaul
from airprune.rounds.method import Method
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.scenario.model_shape import shape_of
from airprune.scenario.sections import EngineSection
from airprune.studies.campaign import WITHIN, Campaign, CampaignRun
from airprune.studies.league import tuning
from airprune.studies.league.finished import FinishedRun, read_finished
from airprune.studies.league.ledger import Line
from airprune.studies.league.lineup import Entry
from airprune.studies.league.tracks import Track
from airprune.studies.league.tuning import Knobs

# Recorded by every run that is ranked; by those of claims too, so that they share runs with the tables.
MEASURED = {"diagnostics.sub_models": True}


def league_run(label: str, scenario: Scenario, seed: int) -> CampaignRun:
    """Returns the run of this scenario for this seed, by one process."""
    mine = scenario.with_values({**WITHIN, "seed": seed})
    return CampaignRun(label=f"{label}, seed {seed}", scenario=mine, folder_name=mine.hash[:16])


def tuning_runs(track: Track, entry: Entry) -> list[tuple[Knobs, list[CampaignRun]]]:
    """Returns the tuning runs of a method for all values of its grid, over seeds that are used for tuning only."""
    found = []
    for knobs in tuning.grid(entry.scenario):
        label = f"{track.name} {entry.name} trial {tuning.knobs_text(knobs)}"
        scenario = tuning.tuning_scenario(entry.scenario, knobs)
        found.append((knobs, [league_run(label, scenario, seed) for seed in tuning.SEEDS]))
    return found


def ranked_runs(track: Track, entry: Entry, knobs: Knobs | None, seeds: Sequence[int]) -> list[CampaignRun]:
    """Returns the runs that are ranked, with tuned values, or untuned."""
    scenario = entry.scenario.with_values({**(knobs or {}), **MEASURED})
    return [league_run(f"{track.name} {entry.name}", scenario, seed) for seed in seeds]


def backhaul_bits(scenario: Scenario) -> float:
    """Returns the bits of a whole model on a link above the edges, with those that the objective sends beside it."""
    shape, method, value_bits = shape_of(scenario), Method.of(scenario), scenario.plan.bits_per_weight
    beside = method.objective.upload_bits(shape, value_bits)
    wire = Wire.of(shape, value_bits=value_bits)
    return Backhaul(
        compression=method.backhaul, wire=wire, shape=shape, seed=scenario.seed, extra_bits=float(beside)
    ).bits


class RunStore:
    """The folder of all runs, and the recorded results of runs that are not there.

    Attributes:
      recorded: finished runs by folder name. An existing folder takes precedence.
    """

    def __init__(self, path: Path, engine: EngineSection | None, recorded: Mapping[str, Line] | None = None) -> None:
        self.path = path.absolute()
        self.engine = engine
        self.recorded = recorded or {}
        self._backhaul_bits: dict[str, float] = {}

    def campaign_of(self, runs: Iterable[CampaignRun]) -> Campaign:
        """Returns a campaign of the runs that are not recorded; each once, however many tables need it."""
        once = {run.folder_name: run for run in runs if self._recorded(run) is None}
        return Campaign(tuple(once.values()), self.path, self.engine)

    def finished(self, run: CampaignRun) -> FinishedRun | None:
        """Returns the measurements of a run; None unless it is finished."""
        line = self.line(run)
        return None if line is None else line.played

    def line(self, run: CampaignRun) -> Line | None:
        """Returns the run's line of the ledger; None unless it is finished."""
        recorded = self._recorded(run)
        folder = RunFolder.below(self.path, run.folder_name)
        if recorded is not None or not folder.has_finished(run.scenario):
            return recorded
        deadline_s = run.scenario.plan.deadline_s
        found = read_finished(
            folder,
            deadline_s=float("inf") if isinstance(deadline_s, str) else deadline_s,
            model_bits=self._model_bits(run.scenario),
            has_backhaul=not run.scenario.is_flat,
        )
        return Line.of(run=run.folder_name, label=run.label, environment=folder.environment(), played=found)

    def _recorded(self, run: CampaignRun) -> Line | None:
        is_here = os.path.lexists(self.path / run.folder_name)
        return None if is_here or files_used_by(run.scenario) else self.recorded.get(run.folder_name)

    def _model_bits(self, scenario: Scenario) -> float:
        """Returns the bits that an edge sends to the cloud; the same for all seeds."""
        key = scenario.with_("seed", 0).hash
        if key not in self._backhaul_bits:
            self._backhaul_bits[key] = backhaul_bits(scenario)
        return self._backhaul_bits[key]

    def best_knobs(self, track: Track, entry: Entry) -> Knobs | None:
        """Returns the values of the most accurate tuning runs; None if none is complete."""
        found = []
        for knobs, runs in tuning_runs(track, entry):
            ended = [self.finished(run) for run in runs]
            found.append((knobs, [None if one is None else one.accuracy for one in ended]))
        return tuning.best(found)
