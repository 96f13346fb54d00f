"""Finished runs in one small file, played.jsonl: all that a league's tables need, without the run folders.

A line per run: the name of its folder, which is the hash of its scenario, a label, where it ran, and its measurements.
A league given such a file goes on from there (`--ledger`), on another machine or after its folders are deleted. Runs of
methods from a user's own files are excluded: their hash does not cover the contents of those files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from airprune import files
from airprune.errors import UsageError
from airprune.studies.league.finished import FinishedRun
from airprune.tables import write_text_atomic

LEDGER = "played.jsonl"
_LONGEST_FILE = 64_000_000
_WHERE = ("airprune", "commit", "python", "torch", "cpu", "cores", "kernel")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One finished run.

    Attributes:
      run: the name of its folder.
      label: track, method, tuned values and seed in words.
      where: program and machine, as in `environment.json`.
    """

    run: str
    label: str
    where: Mapping[str, Any]
    played: FinishedRun

    @classmethod
    def of(cls, *, run: str, label: str, environment: Mapping[str, Any], played: FinishedRun) -> Line:
        where = {key: environment[key] for key in _WHERE if key in environment}
        return cls(run=run, label=label, where=where, played=played)

    def text(self) -> str:
        return json.dumps(_plain(asdict(self)), ensure_ascii=False, allow_nan=False)


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


def read_ledger(path: Path) -> dict[str, Line]:
    """Reads the lines by folder name; the last of several lines of a run counts. Refuses what is no ledger."""
    try:
        with files.open_to_read(path) as file:
            text = files.read_at_most(file, _LONGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"--ledger must be a file that a league wrote, got {path}: {error.strerror}.") from None
    if len(text) > _LONGEST_FILE:
        raise UsageError(f"--ledger must have at most {_LONGEST_FILE:,} bytes, got more in {path}.")
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            one = _ADAPTER.validate_json(line)
        except ValidationError as error:
            field = ".".join(map(str, error.errors()[0]["loc"])) or "the line"
            raise UsageError(
                f"--ledger must be a file that a league wrote ({LEDGER}), got {path}, whose line {number} has no "
                f"valid {field}."
            ) from None
        found[one.run] = one
    return found


def write_ledger(path: Path, lines: Iterable[Line]) -> None:
    """Writes the lines sorted by label, so that two ledgers can be compared."""
    ordered = sorted(lines, key=lambda line: (line.label, line.run))
    write_text_atomic(path, "".join(f"{line.text()}\n" for line in ordered), follow_link=False)
