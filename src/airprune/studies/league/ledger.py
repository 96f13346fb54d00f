"""Finished runs in one small file, played.jsonl: what a league's tables rest on, without the run folders.

A line per run: the name of its folder, which is the hash of its scenario, what it was in words, where it ran, and what
was measured. A league given such a file goes on from there (`--played`), on another machine or after its folders have
gone. Runs of methods from a user's own files are left out: their hash does not say what was in those files.
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
from airprune.studies.league.measured import Played
from airprune.tables import write_text_atomic

LEDGER = "played.jsonl"
_LONGEST_FILE = 64_000_000
_WHERE = ("airprune", "commit", "python", "torch", "cpu", "cores", "kernel")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One finished run.

    Attributes:
      run: the name of its folder.
      label: in words: division, method, what was tried, seed.
      where: what `environment.json` says of program and machine.
    """

    run: str
    label: str
    where: Mapping[str, Any]
    played: Played

    @classmethod
    def of(cls, *, run: str, label: str, environment: Mapping[str, Any], played: Played) -> Line:
        where = {key: environment[key] for key in _WHERE if key in environment}
        return cls(run=run, label=label, where=where, played=played)

    def text(self) -> str:
        return json.dumps(_plain(asdict(self)), ensure_ascii=False, allow_nan=False)


_ADAPTER = TypeAdapter(Line)


def _plain(value: Any) -> Any:
    """NaN has no word in JSON; as text it comes back as the number it was."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def read_ledger(path: Path) -> dict[str, Line]:
    """By folder name; of several lines of a run the last. What is no ledger is refused."""
    try:
        with files.open_to_read(path) as file:
            text = files.read_at_most(file, _LONGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"--played must be a file that a league wrote, got {path}: {error.strerror}.") from None
    if len(text) > _LONGEST_FILE:
        raise UsageError(f"--played must have at most {_LONGEST_FILE:,} bytes, got more in {path}.")
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            one = _ADAPTER.validate_json(line)
        except ValidationError as error:
            field = ".".join(map(str, error.errors()[0]["loc"])) or "the line"
            raise UsageError(
                f"--played must be a file that a league wrote ({LEDGER}), got {path}, whose line {number} has no "
                f"valid {field}."
            ) from None
        found[one.run] = one
    return found


def write_ledger(path: Path, lines: Iterable[Line]) -> None:
    """Sorted by what they are, so that two ledgers can be compared."""
    ordered = sorted(lines, key=lambda line: (line.label, line.run))
    write_text_atomic(path, "".join(f"{line.text()}\n" for line in ordered), follow_link=False)
