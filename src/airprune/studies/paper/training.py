"""Figures that need training: which runs they are made of, and the tidy table that their pictures and claims read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airprune.results.measures import CURVE_COLUMNS
from airprune.results.tidy import Rows
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.studies.paper.profiles import Profile


@dataclass(frozen=True, kw_only=True)
class TrainingFigure:
    """A figure of the paper that is made of runs.

    Attributes:
      series: label → what differs from the preset. Runs that several figures share are made once.
    """

    name: str
    title: str
    series: dict[str, dict[str, Any]]

    def scenarios(self, profile: Profile, seeds: Sequence[int]) -> Iterator[tuple[str, str, int, Scenario]]:
        """(preset, series, seed, scenario) of every run."""
        for seed in seeds:
            for preset in profile.presets:
                for label, changes in self.series.items():
                    yield preset, label, seed, profile.scenario(preset, seed, changes)

    def rows(self, profile: Profile, seeds: Sequence[int], runs: Path) -> Rows:
        """The tidy table of finished runs: one row per global round."""
        found: Rows = []
        for preset, label, seed, scenario in self.scenarios(profile, seeds):
            for record in RunFolder(run_path(runs, scenario)).records():
                if record["kind"] == "global":
                    measures = {name: record.get(name) for name in CURVE_COLUMNS}
                    found.append({"preset": preset, "series": label, "seed": seed, **measures})
        return found


def run_path(runs: Path, scenario: Scenario) -> Path:
    """Where a scenario's run is kept: its name is what it depends on."""
    return runs / scenario.hash[:16]


def missing_runs(
    figures: Sequence[TrainingFigure], profile: Profile, seeds: Sequence[int], runs: Path
) -> dict[str, tuple[str, Scenario]]:
    """Runs still to be made or finished, each once, in the order of the figures: path → (label, scenario)."""
    wanted: dict[str, tuple[str, Scenario]] = {}
    for figure in figures:
        for preset, label, seed, scenario in figure.scenarios(profile, seeds):
            folder = RunFolder(run_path(runs, scenario))
            if not folder.has_finished(scenario):
                wanted.setdefault(str(folder.path), (f"{figure.name}, {preset}, {label}, seed {seed}", scenario))
    return wanted


def start(scenario: Scenario, runs: Path) -> Iterator[dict[str, Any]]:
    """The records still to come of a scenario's run."""
    from airprune.runs import run  # needs torch, which the tables of finished runs do not

    return run(scenario, out=run_path(runs, scenario), resume=True)
