"""Checks a ledger: its lines, the tables and verdicts that follow from it, and a random sample of its runs.

Beside a ledger `played.jsonl` lie `league.json` and `league.csv`; beside `X-played.jsonl`, `X-results.json` and
`X-results.csv`.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import random
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import airprune
from airprune.errors import AirpruneError, UsageError
from airprune.runs.lines import read_json
from airprune.scenario import Scenario
from airprune.studies.campaign import WITHIN
from airprune.studies.league.claims import applicable
from airprune.studies.league.document import DOCUMENT
from airprune.studies.league.folder import League
from airprune.studies.league.league_run import LeagueRun
from airprune.studies.league.ledger import LEDGER, Ledger, Line
from airprune.studies.league.sources import CLAIMS
from airprune.studies.league.standings import Standings
from airprune.studies.league.tables import csv_rows
from airprune.studies.league.tracks import TRACKS

_RECORDED = "-played.jsonl"
_LONGEST_DOCUMENT = 2**26
# On another kernel or CPU sums are rounded in another order, and training amplifies that.
ACCURACY_TOLERANCE = 0.03
COST_TOLERANCE = 0.01
# Of recomputed tables: numbers that are equal but for the order of a sum.
_ROUNDING = 1e-9
_MOST_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The document and the CSV file that belong to a ledger; None where there is none."""

    document: Mapping[str, Any] | None
    table: list[dict[str, str]] | None

    @classmethod
    def beside(cls, ledger: Path) -> Recorded:
        stem = ledger.name.removesuffix(_RECORDED)
        is_own = ledger.name == LEDGER
        document = read_json(
            ledger.with_name(DOCUMENT if is_own else f"{stem}-results.json"), max_bytes=_LONGEST_DOCUMENT
        )
        table = ledger.with_name("league.csv" if is_own else f"{stem}-results.csv")
        rows = list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8")))) if table.is_file() else None
        return cls(document=document if isinstance(document, dict) else None, table=rows)


def faults_of_lines(ledger: Ledger) -> list[str]:
    """Returns the lines whose settings do not make the scenario that they name, or whose run has another name."""
    found = []
    for line in ledger.lines:
        try:
            mine = line.scenario_again()
        except AirpruneError as error:
            found.append(f"{line.label}: {error}")
            continue
        if mine.hash != line.scenario:
            found.append(f"{line.label}: its settings make the scenario {mine.hash[:16]}, not {line.scenario[:16]}")
        if line.run != line.scenario[:16]:
            found.append(f"{line.label}: its run {line.run} is not the beginning of its scenario's hash")
    return found


def unreachable_commits(ledger: Ledger, clone: Path) -> list[str] | None:
    """Returns the commits that are not in the history of a clone's HEAD, with their number of lines; None: no clone."""
    if _git(clone, "rev-parse", "HEAD") is None:
        return None
    counts: dict[str, int] = {}
    for line in ledger.lines:
        commit = str(line.where.get("commit"))
        counts[commit] = counts.get(commit, 0) + 1
    return [
        f"{commit}: not in the history, {count:,} lines"
        for commit, count in counts.items()
        if _git(clone, "merge-base", "--is-ancestor", commit, "HEAD") is None
    ]


def own_clone() -> Path:
    """Returns the folder of this package's source, which is in a git clone if it was not installed from a wheel."""
    return Path(airprune.__file__).parent


def _git(clone: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(clone), *words], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def league_again(document: Mapping[str, Any], ledger: Ledger, *, engine: Any = None) -> League:
    """Returns the league that wrote a document, on the runs of its ledger alone."""
    about = document.get("league")
    try:
        if not isinstance(about, Mapping):
            raise KeyError("league")
        base = Scenario.preset(about["preset"]).with_values(about["settings"])
        names = set(about["claims"])
        return League(
            base=base,
            note=str(document["note"]),
            tracks=tuple(TRACKS[name] for name in about["tracks"]),
            methods=None if about["methods"] is None else tuple(about["methods"]),
            seeds=tuple(about["seeds"]),
            is_tuned=bool(about["is_tuned"]),
            is_beside=bool(about["is_beside"]),
            claims=tuple(claim for claim in applicable(CLAIMS, base) if claim.name in names) if names else (),
            has_ablations=bool(about.get("has_ablations")),
            out=Path("no-such-league"),
            engine=engine or base.engine,
            recorded=ledger,
        )
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"The recorded document must say which league wrote it, got one without {error}; run that league again."
        ) from None


def faults_of_tables(recorded: Recorded, league: League) -> list[str]:
    """Recomputes tables and verdicts from the ledger; returns where the recorded ones differ."""
    found = league.standings()
    again = json.loads(json.dumps(league.document(found, league.verdicts()), allow_nan=False))
    faults: list[str] = []
    if recorded.document is not None:
        for key in ("divisions", "claims"):
            faults += differences(recorded.document.get(key), again[key], key)
        if league.has_ablations:
            faults += differences(recorded.document.get("ablations"), again["ablations"], "ablations")
    if recorded.table is not None:
        faults += differences(recorded.table, _as_csv(found), "csv")
    return faults


def _as_csv(found: Sequence[Standings]) -> list[dict[str, str]]:
    """Returns the rows as a CSV file holds them."""
    rows = [row for one in found for row in csv_rows(one)]
    return [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]


def differences(recorded: Any, again: Any, place: str) -> Iterator[str]:
    """Yields the places in which two plain values differ; numbers by more than rounding."""
    if isinstance(recorded, Mapping) and isinstance(again, Mapping):
        for key in {**recorded, **again}:
            named = again.get("method") or again.get("name") or ""
            yield from differences(recorded.get(key), again.get(key), f"{place}.{f'{named}.' if named else ''}{key}")
    elif isinstance(recorded, list) and isinstance(again, list):
        for i, (mine, other) in enumerate(itertools.zip_longest(recorded, again)):
            yield from differences(mine, other, f"{place}[{i}]")
    elif not _equal(recorded, again):
        yield f"{place}: recorded {recorded!r}, recomputed {again!r}"


def _equal(mine: Any, other: Any) -> bool:
    if mine == other:
        return True
    try:
        first, second = float(mine), float(other)
    except (TypeError, ValueError):
        return False
    return math.isclose(first, second, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def sample_of(ledger: Ledger, count: int, seed: int) -> list[Line]:
    """Returns so many runs of a ledger at random, each once."""
    lines = sorted(ledger.values(), key=lambda line: line.run)
    return random.Random(seed).sample(lines, min(count, len(lines)))


def run_again(line: Line) -> LeagueRun:
    """Returns the run of a line, to be made again."""
    scenario = line.scenario_again().with_values(WITHIN)
    return LeagueRun(label=line.label, scenario=scenario, folder_name=line.run, purpose=line.purpose)


def is_same_machine(line: Line, again: Line) -> bool:
    """True if both runs were computed by the same kernel, torch and family of CPUs."""
    return all(line.where.get(key) == again.where.get(key) for key in ("kernel", "torch", "cpu"))


def faults_of_run(line: Line, again: Line | None) -> list[str]:
    """Compares a run that was made again with its line; exactly on the same machine, else within the tolerances."""
    if again is None:
        return [f"{line.label}: it did not finish"]
    is_exact = is_same_machine(line, again)
    pairs = zip(_numbers(asdict(line.played)), _numbers(asdict(again.played)), strict=False)
    faults = [
        f"{line.label}, {name}: recorded {mine!r}, again {other!r}"
        for (name, mine), (_, other) in pairs
        if not _agree(name, mine, other, is_exact=is_exact)
    ]
    if len(line.played.tests) != len(again.played.tests):
        faults.append(f"{line.label}: recorded {len(line.played.tests)} tests, again {len(again.played.tests)}")
    return faults


def _numbers(value: Any, place: str = "") -> Iterator[tuple[str, float | None]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(part, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from _numbers(part, f"{place}[{i}]")
    else:
        yield place, value


def _agree(name: str, mine: float | None, other: float | None, *, is_exact: bool) -> bool:
    if mine is None or other is None:
        return mine is other
    if mine == other or (math.isnan(mine) and math.isnan(other)):
        return True
    if is_exact:
        return False
    if "accuracy" in name:
        return abs(mine - other) <= ACCURACY_TOLERANCE
    if name.startswith("conduct"):  # which weights are pruned follows from rounded sums
        return math.isclose(mine, other, rel_tol=10 * COST_TOLERANCE, abs_tol=1.0)
    return math.isclose(mine, other, rel_tol=COST_TOLERANCE)


def listed(faults: Iterable[str]) -> str:
    """Returns the first faults, one per line, and how many there are."""
    everything = list(faults)
    more = [f"… and {len(everything) - _MOST_SHOWN:,} more"] if len(everything) > _MOST_SHOWN else []
    return "\n".join([*everything[:_MOST_SHOWN], *more])
