"""Estimates of the CPU time of runs, from those that have been measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from airprune.runs.durations import RUN_S, Workload, workload_of
from airprune.scenario import Scenario
from airprune.text import counted


@dataclass(frozen=True)
class Left:
    """The work that is left.

    Attributes:
      num_runs: as many as races usually have; `at_most`: as many as they may have.
      cpu_s: of the usual number; None if the time of a run is not known.
    """

    num_runs: int = 0
    at_most: int = 0
    cpu_s: float | None = 0.0

    def plus(self, num_runs: int, at_most: int, each_s: float | None) -> Left:
        cpu_s = None if self.cpu_s is None or (each_s is None and num_runs) else self.cpu_s + num_runs * (each_s or 0.0)
        return Left(self.num_runs + num_runs, self.at_most + at_most, cpu_s)

    def __str__(self) -> str:
        runs = f"about {counted(self.num_runs, 'run')}"
        if self.at_most > self.num_runs:
            runs += f" (at most {self.at_most:,})"
        return runs if self.cpu_s is None else f"{runs}, {hours_text(self.cpu_s)} of CPU time"


def hours_text(cpu_s: float) -> str:
    return f"{cpu_s / 3600.0:.2g} h" if cpu_s >= 600.0 else f"{cpu_s / 60.0:.2g} min"


@dataclass(frozen=True)
class Load:
    """The computation of a run: of which model on which data, and how much."""

    kind: str
    work: Workload
    scenario: Scenario

    @classmethod
    def of(cls, scenario: Scenario) -> Load:
        return cls(f"{scenario.model.name} {scenario.data.source}", workload_of(scenario), scenario)


@dataclass
class Effort:
    """CPU seconds per sample of a model, measured on finished runs or timed beforehand."""

    _measured: dict[str, tuple[float, float]] = field(default_factory=dict)
    _timed: dict[str, float | None] = field(default_factory=dict)

    def add(self, scenario: Scenario, cpu_s: float | None) -> None:
        """Notes the CPU time of a finished run."""
        if cpu_s is not None:
            load = Load.of(scenario)
            samples, total_s = self._measured.get(load.kind, (0.0, 0.0))
            self._measured[load.kind] = samples + load.work.samples, total_s + cpu_s

    def of(self, load: Load) -> float | None:
        """Returns the CPU seconds of a run; None if its model cannot be timed here."""
        samples, total_s = self._measured.get(load.kind, (0.0, 0.0))
        if samples:
            return total_s / samples * load.work.samples
        if load.kind not in self._timed:
            from airprune.runs.timing import seconds_per_sample

            self._timed[load.kind] = seconds_per_sample(load.scenario)
        rate = self._timed[load.kind]
        return None if rate is None else RUN_S + load.work.cpu_seconds(rate)
