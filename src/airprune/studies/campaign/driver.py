"""Does a list of runs, each once: side by side on an engine's workers, or one by one in this process.

Comparisons, sweeps, leagues, reproductions and pilots all are such lists. A run that is finished is skipped, one that
was interrupted goes on from its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airprune.engines import engine_named
from airprune.engines.base import Died
from airprune.engines.machine import num_cores
from airprune.methods.registration import setup_payload
from airprune.runs import run as run_scenario
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.scenario.sections import EngineSection
from airprune.studies.campaign.files import Marker, install
from airprune.studies.campaign.whole_run import (
    Read,
    WholeRun,
    WholeRuns,
    given_up,
    own_kernel,
    read_all,
    until_diverged,
)

# Each run is one process's work, whatever engine the campaign is on.
WITHIN = {"engine.name": "serial", "engine.workers": None, "engine.scheduler": None, "engine.tls": None}


@dataclass(frozen=True, kw_only=True)
class CampaignRun:
    """One run.

    Attributes:
      label: its name for people.
      scenario: with `WITHIN` if runs go side by side.
      folder_name: of its folder in the campaign's.
      read: reads its records where they are made, and may leave off before the last.
    """

    label: str
    scenario: Scenario
    folder_name: str
    read: Read = read_all


Watch = Callable[[CampaignRun, Iterator[dict[str, Any]]], Iterable[dict[str, Any]]]
"""Passes on the records of a run, e.g. to show progress."""


@dataclass(frozen=True)
class Outcome:
    """A run that has come to its end, or the one line that says why it has not.

    Attributes:
      found: what the run's `read` has returned.
    """

    run: CampaignRun
    trouble: str | None
    found: Any = None


def at_a_time(engine: EngineSection | None, num_runs: int) -> int:
    """Returns how many of so many runs go on side by side, as far as that is known here."""
    if engine is None or engine.name == "serial":
        return 1
    return min(engine.workers or (num_cores() if engine.scheduler is None else num_runs), num_runs)


class Campaign:
    """Runs, and the folder that holds theirs.

    Args:
      path: None: the runs leave nothing behind.
      engine: says where whole runs go, several at a time; None: one after the other in this process, each on the engine
        of its own scenario.
      given: what `run` takes besides scenario and folder; for runs in this process.
    """

    def __init__(
        self,
        runs: Sequence[CampaignRun],
        path: Path | None,
        engine: EngineSection | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.runs = runs
        self.engine = engine
        self._path = path
        self._given = given or {}

    def run_folder(self, run: CampaignRun) -> RunFolder:
        if self._path is None:
            raise ValueError("the runs of a campaign without a folder leave nothing behind")
        return RunFolder.below(self._path, run.folder_name)

    def is_finished(self, run: CampaignRun) -> bool:
        return self.run_folder(run).has_finished(run.scenario)

    def missing(self) -> list[CampaignRun]:
        """Returns the runs that are not finished yet."""
        return [run for run in self.runs if not self.is_finished(run)]

    def last_round(self, run: CampaignRun) -> dict[str, Any] | None:
        """Returns the last global round of a finished run."""
        folder = self.run_folder(run)
        if not self.is_finished(run) or not os.path.lexists(folder.records_file):
            return None
        return folder.reader.last("global")

    def outcomes(self, runs: Sequence[CampaignRun], *, watch: Watch = lambda _, records: records) -> Generator[Outcome]:
        """Finishes these runs; yields each as it ends. Closing it stops what is under way, resumable.

        Side by side, a run that fails stops no other. In this process its error is raised.

        Args:
          watch: of runs in this process.
        """
        if self.engine is None:
            yield from self._one_by_one(runs, watch)
        elif runs:
            yield from self._side_by_side(runs, self.engine)

    def _one_by_one(self, runs: Sequence[CampaignRun], watch: Watch) -> Generator[Outcome]:
        for run in runs:
            path = self.run_folder(run).path
            with contextlib.closing(run_scenario(run.scenario, out=path, resume=True, **self._given)) as records:
                found = run.read(until_diverged(watch(run, records)))
            yield Outcome(run, None, found)

    def _side_by_side(self, runs: Sequence[CampaignRun], settings: EngineSection) -> Generator[Outcome]:
        engine_class = engine_named(settings.name)
        marker = Marker.of(self._path.absolute()) if engine_class.remote and self._path is not None else None
        engine = engine_class(
            WholeRuns(marker=marker, kernel=own_kernel(), setup_payload=setup_payload()),
            workers=at_a_time(settings, len(runs)),
            scheduler=settings.scheduler,
            tls=None if settings.tls is None else Path(settings.tls),
            silence_s=settings.worker_timeout_s,
        )
        tasks = [self._task(run, carries=settings.scheduler is not None) for run in runs]
        with engine, contextlib.nullcontext() if marker is None else marker.placed():
            ended = engine.as_completed("finish", [(None, task) for task in tasks])
            with contextlib.closing(ended):
                for index, done in ended:
                    if isinstance(done, Died):
                        yield Outcome(runs[index], given_up(done))
                        continue
                    folder = tasks[index].folder
                    if done.files and folder is not None:
                        install(done.files, folder)
                    yield Outcome(runs[index], done.trouble, done.found)

    def _task(self, run: CampaignRun, *, carries: bool) -> WholeRun:
        folder = None if self._path is None else self.run_folder(run).path.absolute()
        return WholeRun(folder=folder, toml=run.scenario.to_toml(), carries=carries, read=run.read)
