"""The base of all loggers: numbers by name and step, and the scenario as parameters."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from airprune.results.rows import edge_row, global_row
from airprune.rounds.records import EdgeRecord, GlobalRecord, record_from
from airprune.runs.callbacks import Callback, Record
from airprune.runs.naming import value_text
from airprune.scenario import Scenario
from airprune.settings.toml_text import flat

# Set before a logger's package is imported; what the user has set stays.
_NO_TELEMETRY = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
}
_WHERE = ("global_round", "edge_round")


class Sink(Callback):
    """A logger. Subclasses open, write and close; steps of global rounds are the rounds, of edge rounds the edge rounds
    since the start.

    Attributes:
      name: its word on the command line.
    """

    name: ClassVar[str]

    def __init__(self, folder: str | Path | None = None) -> None:
        """`folder`: where the logger writes; by default a folder of its name in the run folder, or runs/NAME-seedN."""
        self._folder = None if folder is None else Path(folder)
        self._edge_rounds = 1

    @abstractmethod
    def open(self, folder: Path, title: str, parameters: Mapping[str, str]) -> None: ...

    @abstractmethod
    def write(self, numbers: Mapping[str, float], *, step: int, step_name: str) -> None: ...

    @abstractmethod
    def close(self, *, finished: bool) -> None: ...

    def begin(self, scenario: Scenario, folder: Path | None) -> None:
        for name, value in _NO_TELEMETRY.items():
            os.environ.setdefault(name, value)
        title = f"{scenario.name}-seed{scenario.seed}" if folder is None else folder.resolve().name
        self._edge_rounds = max(scenario.edge_rounds_of)
        place = self._folder or (folder or Path("runs") / title) / self.name
        parameters = {key: value_text(value) for key, value in flat(scenario.to_dict()).items()}
        self.open(place.resolve(), title, parameters)

    def take(self, record: Record) -> None:
        read = record_from(record)
        if isinstance(read, GlobalRecord):
            self.write(_numbers(global_row(read)), step=read.global_round, step_name="global_round")
        elif isinstance(read, EdgeRecord):
            step = (read.global_round - 1) * self._edge_rounds + read.edge_round
            numbers = {f"edge/{name}": value for name, value in _numbers(edge_row(read)).items()}
            self.write(numbers, step=step, step_name="edge/round")

    def end(self, *, finished: bool) -> None:
        self.close(finished=finished)


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in row.items()
        if name not in _WHERE and isinstance(value, int | float) and math.isfinite(value)
    }
