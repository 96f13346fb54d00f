"""A sweep's folder: one run folder per run beside these files.

sweep.json    the settings that all runs share, so that another scenario's sweep is not mixed in
sweep.csv     one row per run: the swept values, and the last global round
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import airprune
from airprune.engines import check_engine
from airprune.errors import UsageError
from airprune.results.crossover import Crossover, Row, Swept, crossover_of
from airprune.results.measures import TO_TARGET
from airprune.results.statistics import num_diverged, summary
from airprune.results.time_to_target import TIME, Evaluation, evaluations_in, tidy_row, to_target
from airprune.runs.layout import RunFolder
from airprune.runs.lines import read_json
from airprune.runs.lock import locked
from airprune.runs.naming import value_text
from airprune.studies.campaign.driver import Campaign, CampaignRun
from airprune.studies.campaign.runs import Sweep, SweptRun
from airprune.tables import write_csv_atomic, write_text_atomic
from airprune.text import shown

_NOTE = "sweep.json"
_TABLE = "sweep.csv"
_LEADING = ("seed", "folder", "state")
_TARGET_COLUMNS = ("target_accuracy", "reached", *TO_TARGET)


def crossover_in(rows: Sequence[Row]) -> Crossover | None:
    """Returns time to the target over the one swept key that is a number; None without such a key, or a target."""
    return crossover_of(
        Swept(values=row.values, scheme=row.scheme, costs=row.to_target.costs[TIME])
        for row in rows
        if row.to_target is not None
    )


class SweepFolder(Campaign):
    """Runs a sweep in a folder and reads what is there."""

    def __init__(self, sweep: Sweep, path: Path) -> None:
        self.sweep = sweep
        self.path = path.absolute()
        super().__init__(sweep.runs, self.path, sweep.engine)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Claims the folder for this sweep; refuses one that holds another scenario's, or that is being written."""
        settings = self.sweep.engine
        check_engine(
            settings.name, workers=settings.workers, scheduler=settings.scheduler
        )  # before anything is written
        fixed = self.sweep.fixed()
        self._refuse_others(fixed)
        with locked(self.path):
            variants = dict.fromkeys(run.folder_name.rpartition("-seed")[0] for run in self.sweep.runs)
            note = {
                "airprune": airprune.__version__,
                "swept": self.sweep.keys,
                "variants": list(variants),
                "fixed": fixed,
            }
            write_text_atomic(self.path / _NOTE, json.dumps(note, indent=1) + "\n", follow_link=False)
            yield

    def rows(self, target: float | None = None) -> list[Row]:
        """Returns a row per combination of values, in order; with a target, also the costs until it was reached."""
        lasts: dict[str, list[tuple[SweptRun, dict[str, Any] | None]]] = {}
        for run in self.sweep.runs:
            name = json.dumps([value_text(value) for value in run.values.values()])
            lasts.setdefault(name, []).append((run, self.last_round(run)))
        finished = {name: [run for run, last in pairs if last is not None] for name, pairs in lasts.items()}
        there = {name: [[last] for _, last in pairs if last is not None] for name, pairs in lasts.items()}
        estimates = summary({name: rounds for name, rounds in there.items() if rounds})
        reached = (
            {} if target is None else to_target({name: self._tests(mine) for name, mine in finished.items()}, target)
        )
        return [
            Row(
                values=pairs[0][0].values,
                scheme=pairs[0][0].scenario.plan.scheme,
                seeds=tuple(run.scenario.seed for run in finished[name]),
                num_runs=len(pairs),
                estimates=estimates.get(name, {}),
                to_target=reached.get(name),
                num_diverged=num_diverged(there[name]),
            )
            for name, pairs in lasts.items()
        ]

    def evaluations(self) -> dict[str, dict[int, list[Evaluation]]]:
        """Reads every test of the models of the finished runs, by combination and seed."""
        found: dict[str, list[SweptRun]] = {}
        for run in filter(self.is_finished, self.sweep.runs):
            found.setdefault(run.folder_name.rpartition("-seed")[0], []).append(run)
        return {variant: self._tests(runs) for variant, runs in found.items()}

    def _tests(self, runs: Iterable[SweptRun]) -> dict[int, list[Evaluation]]:
        return {run.scenario.seed: evaluations_in(self.run_folder(run)) for run in runs}

    def write_table(self, failed: Sequence[CampaignRun], target: float | None = None) -> Path:
        """Writes `sweep.csv`; cells without a measurement are empty.

        With a target also whether a run reached it, and its costs.
        """
        runs, lasts = self.sweep.runs, [self.last_round(run) or {} for run in self.sweep.runs]
        measured = {name: None for last in lasts for name, value in last.items() if not isinstance(value, list | dict)}
        measures = [name for name in measured if name not in ("kind", "diverged")]
        names, failed_names = [run.folder_name for run in runs], {run.folder_name for run in failed}
        states = [
            _state(last) if last else "failed" if name in failed_names else "unfinished"
            for name, last in zip(names, lasts, strict=True)
        ]
        columns: list[list[Any]] = [[value_text(run.values[key]) for run in runs] for key in self.sweep.keys]
        columns += [[run.scenario.seed for run in runs], names, states]
        columns += [[last.get(name) for last in lasts] for name in measures]
        header = [*self.sweep.keys, *_LEADING, *measures]
        if target is not None:
            header += _TARGET_COLUMNS
            columns += self._target_columns([bool(last) for last in lasts], target)
        path = self.path / _TABLE
        write_csv_atomic(path, header, columns, follow_link=False)
        return path

    def _target_columns(self, finished: Sequence[bool], target: float) -> list[list[Any]]:
        """Returns the target, whether it was reached (empty: unknown), and the costs (empty: none, or unknown)."""
        rows = []
        for run, is_finished in zip(self.sweep.runs, finished, strict=True):
            tests = evaluations_in(self.run_folder(run)) if is_finished else []
            rows.append(tidy_row(run.label, run.scenario.seed, tests, target))
        return [[row[name] for row in rows] for name in _TARGET_COLUMNS]

    def _refuse_others(self, fixed: Mapping[str, Any]) -> None:
        if RunFolder(self.path).has_run:
            raise UsageError(f"{self.path} holds a single run; choose another folder for a sweep.")
        try:
            theirs = read_json(self.path / _NOTE)["fixed"]
            differ = [(key, mine) for key, mine in fixed.items() if key in theirs and theirs[key] != mine]
        except (TypeError, KeyError):
            return  # none, or corrupted; every run folder refuses another scenario by itself
        for key, here in differ:
            raise UsageError(
                f"{self.path} holds a sweep of another scenario: {key} is {shown(here)} here, and another value there; "
                "give the same settings or choose another folder with --out."
            )


def _state(last_round: Mapping[str, Any]) -> str:
    return "diverged" if "diverged" in last_round else "finished"
