"""Many runs as few curves: grouped by what their scenarios differ in, each group with its mean and interval over runs.

Hundreds of runs are read here, once each until they change, and sent as at most `MAX_POINTS` points in all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from airprune.errors import UsageError
from airprune.results.measures import CURVE_COLUMNS, MEASURES, SUMMARY, TO_TARGET
from airprune.results.report.reading import differences
from airprune.results.statistics import Estimate
from airprune.results.time_to_target import to_target
from airprune.runs.followed import MAX_BYTES_AT_ONCE, version_of
from airprune.scenario import Scenario
from airprune.text import exact, shown
from airprune.web.answers import number_or_null
from airprune.web.runs.following import RecordsFile
from airprune.web.runs.listing import listing, scenario_of
from airprune.web.runs.reached import tests_of
from airprune.web.runs.views import ranked, run_named

MAX_GROUPED = 500
MAX_POINTS = 40_000
EACH, SEEDS = "each", "seeds"

_MAX_KEPT = 2 * MAX_GROUPED
_POINTS_OF_A_GROUP = (12, 300)
_MAX_NAMED = 50
_SEED = "seed"

Rows = tuple[tuple[float | None, ...], ...]


def matching(root: Path, words: str) -> list[str]:
    """The runs with all of these words in name, scheme, scenario, data, seed or state; last written first."""
    wanted = words.lower().split()
    rows = listing(root).latest()["runs"]
    return [row["name"] for row in rows if all(word in _text(row) for word in wanted)]


def _text(row: Mapping[str, Any]) -> str:
    told = (row["name"], row["scheme"], row["scenario"], row["data"], f"seed{row['seed']}", row["state"])
    return " ".join(map(str, told)).lower()


def groups(root: Path, names: Sequence[str], by: str, target: float | None = None) -> dict[str, Any]:
    """Curves of the runs, together where they agree in `by`: a key, `seeds` (everything but the seed) or `each`."""
    taken = list(dict.fromkeys(names))[:MAX_GROUPED]
    scenarios = {name: scenario for name in taken if (scenario := _scenario(root, name)) is not None}
    differing = differences(scenarios)
    keys = [key for key in ranked(differing) if key != "name"]  # it tells nothing of the results
    if by not in (EACH, SEEDS, *keys):
        raise UsageError(f"group must be each, seeds or a key in which the runs differ, got {shown(by)}.")
    told = {name: {key: exact(differing[key][name]) for key in keys} for name in scenarios}
    members = _members(list(scenarios), told, by)
    low, high = _POINTS_OF_A_GROUP
    limit = max(low, min(high, MAX_POINTS // max(1, len(members))))
    costs = to_target(_tests(root, members), target) if target is not None else {}
    return {
        "columns": CURVE_COLUMNS,
        "keys": keys,
        "by": by,
        "num_runs": len(taken),
        "num_left_out": len(set(names)) - len(taken),
        "num_unreadable": len(taken) - len(scenarios),
        "groups": [
            {
                "label": label,
                "values": _shared([told[name] for name in found]),
                "num_runs": len(found),
                "runs": found[:_MAX_NAMED],
                **_curve([_rounds(root, name) for name in found], limit),
                "to_target": None
                if target is None
                else {
                    "reached": costs[label].reached_text,
                    **{measure: costs[label].costs[measure].text(measure) for measure in TO_TARGET},
                },
            }
            for label, found in members.items()
        ],
    }


def _members(names: Sequence[str], told: Mapping[str, Mapping[str, str]], by: str) -> dict[str, list[str]]:
    """Label → runs, in the order of the values, numbers as numbers."""
    if by == EACH:
        return {name: [name] for name in sorted(names)}
    found: dict[tuple[str, ...], list[str]] = {}
    keys = [key for key in next(iter(told.values()), {}) if (key == by if by != SEEDS else key != _SEED)]
    for name in names:
        found.setdefault(tuple(told[name][key] for key in keys), []).append(name)
    ordered = sorted(found, key=lambda values: [_order(value) for value in values])
    return {_label(keys, values): sorted(found[values]) for values in ordered}


def _order(value: str) -> tuple[int, float, str]:
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value


def _label(keys: Sequence[str], values: Sequence[str]) -> str:
    """Only `scheme` and the like need no key beside their value."""
    named = [
        value if key in ("method", "plan.scheme") else f"{key.rpartition('.')[2]} = {value}"
        for key, value in zip(keys, values, strict=True)
    ]
    return ", ".join(named) or "all"


def _shared(values: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Returns the settings in which all runs of a group agree."""
    first = values[0]
    return {key: value for key, value in first.items() if all(other[key] == value for other in values)}


def _curve(runs: Sequence[Rows], limit: int) -> dict[str, Any]:
    """By round: how many runs have it, the mean of every column and the half-width of its 95 % interval."""
    by_round: dict[float, list[tuple[float | None, ...]]] = {}
    for rows in runs:
        for row in rows:
            if row[0] is not None:
                by_round.setdefault(row[0], []).append(row)
    rounds = sorted(by_round)
    step = math.ceil(len(rounds) / limit) if rounds else 1
    kept = [number for i, number in enumerate(rounds) if i % step == 0 or i == len(rounds) - 1]
    means, halves = [], []
    for number in kept:
        estimates = [_estimate([row[i] for row in by_round[number]]) for i in range(len(CURVE_COLUMNS))]
        means.append([estimate and number_or_null(estimate.mean) for estimate in estimates])
        halves.append([estimate and number_or_null(estimate.half_width) for estimate in estimates])
    last = [rows[-1] for rows in runs if rows]
    finals = {name: _estimate([row[CURVE_COLUMNS.index(name)] for row in last]) for name in SUMMARY}
    return {
        "count": [len(by_round[number]) for number in kept],
        "mean": means,
        "half_width": halves,
        "is_thinned": step > 1,
        "last": {
            name: estimate.text(MEASURES[name].form, scale=MEASURES[name].scale) if estimate else None
            for name, estimate in finals.items()
        },
    }


def _estimate(values: Sequence[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) == 1:
        return Estimate(known[0], math.nan)
    return Estimate.of(known) if known else None


def _tests(root: Path, members: Mapping[str, Sequence[str]]) -> dict[str, dict[int, Any]]:
    """The evaluations of each group's runs; the place in the group stands for the seed."""
    return {
        label: {i: tests for i, name in enumerate(names) if (tests := _of_run(root, name, tests_of))}
        for label, names in members.items()
    }


def _of_run(root: Path, name: str, read: Any) -> Any:
    try:
        return read(run_named(root, name))
    except HTTPException:  # gone since it was listed
        return None


def _scenario(root: Path, name: str) -> Scenario | None:
    found: Scenario | None = _of_run(root, name, _scenario_in)
    return found


def _scenario_in(path: Path) -> Scenario | None:
    version = version_of(path / "scenario.toml")
    return None if version is None else _scenario_read(path, *version)


@functools.lru_cache(maxsize=_MAX_KEPT)
def _scenario_read(path: Path, size: int, written_ns: int) -> Scenario | None:
    return scenario_of(path)


def _rounds(root: Path, name: str) -> Rows:
    return _of_run(root, name, _rounds_in) or ()


def _rounds_in(path: Path) -> Rows:
    file = path / "records.jsonl"
    version = version_of(file)
    return () if version is None or version[0] > MAX_BYTES_AT_ONCE else _rounds_read(file, *version)


@functools.lru_cache(maxsize=_MAX_KEPT)
def _rounds_read(file: Path, size: int, written_ns: int) -> Rows:
    """Read again when the file has changed; nothing of edge rounds stays."""
    records = RecordsFile(file)
    records.refresh()
    return tuple(records.rounds.items())
