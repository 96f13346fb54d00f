"""Finished runs in one file, played.jsonl: all that a league's tables and verdicts need, without the run folders.

A line per finished run and use: what it was for (purpose, track, method, tuned values), its scenario (hash, a preset
and the settings that differ from it), where it ran, what it cost, and its measurements. A run that a table and a claim
share has a line for each. A league given such a file goes on from there (`--ledger`), on another machine or after its
folders are deleted; `airprune league verify` recomputes from it. Runs of methods from a user's own files are excluded:
their hash does not cover the contents of those files.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from airprune import files
from airprune.errors import UsageError
from airprune.scenario import Scenario
from airprune.scenario.presets import presets
from airprune.settings.toml_text import flat
from airprune.studies.league.finished import FinishedRun
from airprune.studies.league.league_run import LeagueRun, Purpose
from airprune.tables import write_text_atomic

LEDGER = "played.jsonl"
_LONGEST_FILE = 256_000_000
_WHERE = ("airprune", "commit", "python", "torch", "cpu", "cores", "kernel")
# A scenario of no preset is described by what differs from this one.
_PRESET = "paper"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One finished run in one use.

    Attributes:
      run: the name of its folder: the first 16 digits of `scenario`.
      label: track, method, tuned values and seed in words.
      purpose: "tuning", "ranked", "untuned", "claim" or "ablation".
      track, method: the table it is for, and its row there; no track for a claim.
      tuned: the tuned values; empty if the run has the scenario's own.
      scenario: the hash of the scenario.
      preset, settings: the scenario, as a preset and the values that differ from it.
      seed: of its random streams.
      where: program and machine, as in `environment.json`.
      cpu_s: CPU time in seconds; None if it was not measured.
    """

    run: str
    label: str
    purpose: Purpose
    track: str
    method: str
    tuned: Mapping[str, Any]
    scenario: str
    preset: str
    settings: Mapping[str, Any]
    seed: int
    where: Mapping[str, Any]
    cpu_s: float | None
    played: FinishedRun

    @classmethod
    def of(cls, run: LeagueRun, *, environment: Mapping[str, Any], cpu_s: float | None, played: FinishedRun) -> Line:
        scenario = run.scenario
        preset, settings = described(scenario)
        return cls(
            run=run.folder_name,
            label=run.label,
            purpose=run.purpose,
            track=run.track,
            method=run.method or scenario.method,
            tuned=dict(run.knobs),
            scenario=scenario.hash,
            preset=preset,
            settings=settings,
            seed=scenario.seed,
            where={key: environment[key] for key in _WHERE if key in environment},
            cpu_s=cpu_s,
            played=played,
        )

    def for_use(self, run: LeagueRun) -> Line:
        """Returns the same run in another use."""
        return dataclasses.replace(
            self,
            label=run.label,
            purpose=run.purpose,
            track=run.track,
            method=run.method or run.scenario.method,
            tuned=dict(run.knobs),
        )

    def scenario_again(self) -> Scenario:
        """Returns the scenario that the line describes."""
        return Scenario.preset(self.preset).with_values(self.settings)

    def text(self) -> str:
        return json.dumps(_plain(asdict(self)), ensure_ascii=False, allow_nan=False)


def described(scenario: Scenario) -> tuple[str, dict[str, Any]]:
    """Returns a preset and the settings that differ from it, the method first; the engine is none of them."""
    preset = scenario.name if scenario.name in presets() else _PRESET
    plain, mine = Scenario.preset(preset), flat(scenario.to_dict())
    # Also those that the method by itself would have changed.
    differs = {key for start in (plain, plain.with_("method", scenario.method)) for key, _, _ in start.diff(scenario)}
    kept = [key for key in mine if key in differs and key not in ("name", "method") and not key.startswith("engine.")]
    return preset, {"method": scenario.method, **{key: mine[key] for key in kept}}


_ADAPTER = TypeAdapter(Line)


def _plain(value: Any) -> Any:
    """Returns a value with NaN as text, since JSON has no NaN; pydantic reads it back as the number."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


class Ledger(dict[str, Line]):
    """A line of each run by folder name.

    Attributes:
      lines: all of them, a line per use.
    """

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.lines = tuple(lines)
        super().__init__({line.run: line for line in self.lines})


def read_ledger(path: Path) -> Ledger:
    """Reads the lines; the last of several with one run and label counts. Refuses what is no ledger."""
    try:
        with files.open_to_read(path) as file:
            text = files.read_at_most(file, _LONGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"--ledger must be a file that a league wrote, got {path}: {error.strerror}.") from None
    if len(text) > _LONGEST_FILE:
        raise UsageError(f"--ledger must have at most {_LONGEST_FILE:,} bytes, got more in {path}.")
    found: dict[tuple[str, str], Line] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            one = _ADAPTER.validate_json(line)
        except ValidationError as error:
            if _is_of_earlier_form(line):
                raise UsageError(
                    f"--ledger must have the purpose, scenario and settings of every run, got {path}, which an earlier "
                    "airprune wrote; run that league again."
                ) from None
            field = ".".join(map(str, error.errors()[0]["loc"])) or "the line"
            raise UsageError(
                f"--ledger must be a file that a league wrote ({LEDGER}), got {path}, whose line {number} has no "
                f"valid {field}."
            ) from None
        found[one.run, one.label] = one
    return Ledger(found.values())


def _is_of_earlier_form(line: bytes) -> bool:
    """True for a line with a label and measurements, but no purpose."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and {"run", "label", "where", "played"} == set(found)


def write_ledger(path: Path, lines: Iterable[Line]) -> None:
    """Writes the lines sorted by label, so that two ledgers can be compared."""
    ordered = sorted(lines, key=lambda line: (line.label, line.run))
    write_text_atomic(path, "".join(f"{line.text()}\n" for line in ordered), follow_link=False)
