"""Figures that need training: their runs, and the tidy table that the figures and claims read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airprune.results.measures import CURVE_COLUMNS
from airprune.results.tidy import Rows
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.studies.campaign import CampaignRun
from airprune.studies.paper.profiles import Profile


@dataclass(frozen=True, kw_only=True)
class TrainingFigure:
    """A figure of the paper that is made of runs.

    Attributes:
      series: label → changes of the preset. Runs that several figures share are made once.
    """

    name: str
    title: str
    series: dict[str, dict[str, Any]]

    def scenarios(self, profile: Profile, seeds: Sequence[int]) -> Iterator[tuple[str, str, int, Scenario]]:
        """Yields (preset, series, seed, scenario) of every run."""
        for seed in seeds:
            for preset in profile.presets:
                for label, changes in self.series.items():
                    yield preset, label, seed, profile.scenario(preset, seed, changes)

    def runs(self, profile: Profile, seeds: Sequence[int]) -> Iterator[CampaignRun]:
        for preset, label, seed, scenario in self.scenarios(profile, seeds):
            words = f"{self.name}, {preset}, {label}, seed {seed}"
            yield CampaignRun(label=words, scenario=scenario, folder_name=run_path(Path(), scenario).name)

    def rows(self, profile: Profile, seeds: Sequence[int], runs: Path) -> Rows:
        """Returns the tidy table of finished runs: one row per global round."""
        found: Rows = []
        for preset, label, seed, scenario in self.scenarios(profile, seeds):
            for record in RunFolder(run_path(runs, scenario)).records():
                if record["kind"] == "global":
                    measures = {name: record.get(name) for name in CURVE_COLUMNS}
                    found.append({"preset": preset, "series": label, "seed": seed, **measures})
        return found


def run_path(runs: Path, scenario: Scenario) -> Path:
    """Returns the folder of a run, named by the scenario's hash."""
    return runs / scenario.hash[:16]
