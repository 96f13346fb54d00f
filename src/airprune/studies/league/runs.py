"""The runs of a league: those that are ranked, and the folder of all of them."""

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
from airprune.scenario.sections import EngineSection
from airprune.studies.campaign import Campaign, CampaignRun, cpu_seconds
from airprune.studies.league.effort import Effort
from airprune.studies.league.finished import FinishedRun, read_finished
from airprune.studies.league.league_run import LeagueRun, Purpose, league_run
from airprune.studies.league.ledger import Line
from airprune.studies.league.lineup import Entry
from airprune.studies.league.tracks import Track
from airprune.studies.league.tuning import Knobs, Tuning

__all__ = ["MEASURED", "RunStore", "backhaul_bits", "league_run", "ranked_runs"]

# Recorded by every run that is ranked; by those of claims too, so that they share runs with the tables.
MEASURED = {"diagnostics.sub_models": True}


def ranked_runs(
    track: Track, entry: Entry, knobs: Knobs | None, seeds: Sequence[int], *, is_beside: bool = False
) -> list[LeagueRun]:
    """Returns the runs that are ranked, with tuned values, or untuned; `is_beside`: shown beside the tuned ones."""
    scenario = entry.scenario.with_values({**(knobs or {}), **MEASURED})
    return [
        league_run(
            f"{track.name} {entry.name}{' untuned' if is_beside else ''}",
            scenario,
            seed,
            purpose=Purpose.UNTUNED if is_beside else Purpose.RANKED,
            track=track.name,
            method=entry.name,
            knobs=knobs,
        )
        for seed in seeds
    ]


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
      troubles: why a run has failed, by folder name.
      used: the lines of all finished runs that were looked up, by folder name and label.
      tunings: the races that have ended.
      effort: the CPU time of those runs, to estimate others.
    """

    def __init__(self, path: Path, engine: EngineSection | None, recorded: Mapping[str, Line] | None = None) -> None:
        self.path = path.absolute()
        self.engine = engine
        self.recorded = recorded or {}
        self.troubles: dict[str, str] = {}
        self.used: dict[tuple[str, str], Line] = {}
        self.tunings: dict[Any, Tuning] = {}
        self.effort = Effort()
        self._lines: dict[str, Line] = {}
        self._backhaul_bits: dict[str, float] = {}

    @property
    def num_runs(self) -> int:
        """The number of finished runs that were looked up; each once, however many tables need it."""
        return len({folder for folder, _ in self.used})

    def campaign_of(self, runs: Iterable[CampaignRun]) -> Campaign:
        """Returns a campaign of the runs that are not recorded; each once, however many tables need it."""
        once = {run.folder_name: run for run in runs if self._recorded(run) is None}
        return Campaign(tuple(once.values()), self.path, self.engine)

    def finished(self, run: CampaignRun) -> FinishedRun | None:
        """Returns the measurements of a run; None unless it is finished."""
        line = self.line(run)
        return None if line is None else line.played

    def has_failed(self, run: CampaignRun) -> bool:
        return run.folder_name in self.troubles

    def missing(self, runs: Iterable[CampaignRun]) -> list[CampaignRun]:
        """Returns the runs that are to be made: neither finished nor failed."""
        return [run for run in runs if self.line(run) is None and not self.has_failed(run)]

    def line(self, run: CampaignRun) -> Line | None:
        """Returns the run's line of the ledger; None unless it is finished."""
        found = self._lines.get(run.folder_name) or self._read(run)
        if found is None:
            return None
        if run.folder_name not in self._lines:
            self._lines[run.folder_name] = found
            self.effort.add(run.scenario, found.cpu_s)
        mine = found.for_use(run) if isinstance(run, LeagueRun) else found
        if not files_used_by(run.scenario):
            self.used[run.folder_name, run.label] = mine
        return mine

    def _read(self, run: CampaignRun) -> Line | None:
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
        mine = run if isinstance(run, LeagueRun) else LeagueRun(**vars(run))
        return Line.of(mine, environment=folder.environment(), cpu_s=cpu_seconds(folder.path), played=found)

    def _recorded(self, run: CampaignRun) -> Line | None:
        is_here = os.path.lexists(self.path / run.folder_name)
        return None if is_here or files_used_by(run.scenario) else self.recorded.get(run.folder_name)

    def _model_bits(self, scenario: Scenario) -> float:
        """Returns the bits that an edge sends to the cloud; the same for all seeds."""
        key = scenario.with_("seed", 0).hash
        if key not in self._backhaul_bits:
            self._backhaul_bits[key] = backhaul_bits(scenario)
        return self._backhaul_bits[key]
