"""Runs as the page draws them: curves, devices of one edge round, what scenarios differ in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from starlette.exceptions import HTTPException

from airprune.errors import UsageError
from airprune.results.measures import AXES, CURVE_COLUMNS, DEVICE_COLUMNS, DRAWN, MEASURES, SUMMARY, TIMES, TO_TARGET
from airprune.results.report.reading import MAX_BARS, EdgeRound, differences, edge_round, is_run
from airprune.scenario import Scenario
from airprune.text import exact
from airprune.web.answers import numbers
from airprune.web.runs.following import EdgeEntry, RecordsFile, records_file
from airprune.web.runs.listing import listing, scenario_of, state_of
from airprune.web.runs.names import folder_named, missing

MAX_COMPARED = 16
MAX_LISTED_DEVICES = 2_000
# How many runs a page shows that was asked for none in particular.
_SHOWN_AT_FIRST = 6


def run_named(root: Path, name: str) -> Path:
    path = folder_named(root, name)
    if not is_run(path):
        raise missing(name)
    return path


def checked_names(names: Sequence[str]) -> list[str]:
    """Each name once, and not too many of them."""
    found = list(dict.fromkeys(names))
    if len(found) > MAX_COMPARED:
        raise UsageError(f"At most {MAX_COMPARED} runs can be compared, got {len(found)}. Choose fewer.")
    return found


def names_of_runs(root: Path, names: Sequence[str]) -> list[str]:
    """The same, and each of them is a run."""
    found = checked_names(names)
    for name in found:
        run_named(root, name)
    return found


def start_page(root: Path, names: Sequence[str]) -> dict[str, Any]:
    """All that the page shows at first."""
    listed = listing(root).latest()
    known = {row["name"] for row in listed["runs"]}
    # A page must open whatever its address says; names that are no run are said so by the page.
    asked = list(dict.fromkeys(names))[:MAX_COMPARED]
    chosen = [name for name in asked if name in known] or ([] if asked else _first_choice(listed["runs"]))
    return {
        **listed,
        "axes": AXES,
        "drawn": DRAWN,
        "told": SUMMARY,
        "to_target": list(TO_TARGET),
        "device_columns": DEVICE_COLUMNS,
        "measures": {name: MEASURES[name].as_json() for name in (*CURVE_COLUMNS, *DEVICE_COLUMNS, *TO_TARGET)},
        "times": {kind: measure.as_json() for kind, measure in TIMES.items()},
        "columns": CURVE_COLUMNS,
        "max_compared": MAX_COMPARED,
        "unknown": [name for name in asked if name not in known],
        "chosen": chosen,
        "curves": [curve(root, name) for name in chosen],
        "differences": differing(root, chosen),
    }


def _first_choice(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The run written last and those beside it."""
    parents = [row["name"].rpartition("/")[0] for row in rows]
    beside = [row["name"] for row, parent in zip(rows, parents, strict=True) if parent == parents[0]]
    return sorted(beside[:_SHOWN_AT_FIRST])


def curve(root: Path, name: str) -> dict[str, Any]:
    """A run's numbers by round; `gone` if it is no longer there."""
    try:
        path = run_named(root, name)
    except HTTPException:
        return {"name": name, "gone": True}
    file = records_file(path / "records.jsonl")
    file.refresh()
    return {**about_file(file, path), "name": name, "rows": file.rounds.items(), "edges": edge_entries(file)}


def about_file(file: RecordsFile, path: Path) -> dict[str, Any]:
    return {
        "num_rounds": file.rounds.total,
        "num_edge_rounds": file.edges.total,
        "is_thinned": file.rounds.stride > 1 or file.edges.stride > 1,
        # A run at work is just writing its last line; otherwise that line was cut off.
        "num_spoilt": file.num_damaged + (file.has_tail and state_of(path) != "running"),
        "num_bytes": file.num_bytes,
        "num_bytes_read": file.num_bytes if file.has_tail else file.num_bytes_read,
    }


def edge_entries(file: RecordsFile) -> list[tuple[Any, ...]]:
    """(global round, edge round, coverage) without places in the file, which are nobody's business."""
    return [_shown_entry(entry) for entry in file.edges.items()]


def _shown_entry(entry: EdgeEntry) -> tuple[Any, ...]:
    return entry.global_round, entry.edge_round, entry.coverage


def devices(root: Path, name: str, global_round: int, edge_number: int) -> dict[str, Any]:
    """Every device of one edge round; the slowest ones if there are very many."""
    path = run_named(root, name)
    file = records_file(path / "records.jsonl")
    file.refresh()
    record = file.edge_record(global_round, edge_number)
    found = None if record is None else edge_round(record)
    if found is None:
        raise HTTPException(
            404, f"Global round {global_round}, edge round {edge_number} is not in the records, or cannot be read."
        )
    return {
        "name": name,
        "global_round": found.global_round,
        "edge_round": found.edge_round,
        "deadline_s": found.deadline_s(scenario_of(path)),
        "num_devices": found.num_devices,
        "num_recorded": len(found.device),
        "max_drawn": MAX_BARS,
        **_device_columns(found),
    }


def _device_columns(found: EdgeRound) -> dict[str, Any]:
    rows = np.arange(len(found.device))[:MAX_LISTED_DEVICES]
    drawn = found.slowest(MAX_BARS)
    if len(found.device) > MAX_LISTED_DEVICES:  # the drawn ones must be among them
        rows = np.unique(np.concatenate([drawn, rows[: MAX_LISTED_DEVICES - len(drawn)]])).astype(int)
    place = {int(row): i for i, row in enumerate(rows)}
    return {
        "device": [found.device[i] for i in rows],
        "edge": [found.edge[i] for i in rows],
        "fate": [found.fate[i][:40] for i in rows],
        **{name: numbers(getattr(found, name)[rows]) for name in DEVICE_COLUMNS},
        "drawn": [place[i] for i in drawn],
    }


def differing(root: Path, names: Sequence[str]) -> dict[str, Any]:
    """The keys in which the scenarios of these runs differ, as a command line would write their values."""
    found = {name: _scenario(root, name) for name in names}
    readable = {name: scenario for name, scenario in found.items() if scenario is not None}
    found_keys = differences(readable)
    return {
        "names": list(readable),
        "unreadable": [name for name in found if name not in readable],
        "keys": {key: [exact(value) for value in found_keys[key].values()] for key in ranked(found_keys)},
    }


# Keys that are looked at first when a colour is chosen; the seed comes last.
_FIRST_KEYS = ("method", "plan.scheme", "plan.deadline_s", "masking.name", "compression.name", "data.partition")


def ranked(keys: Iterable[str]) -> list[str]:
    """Those that tell most first, the name last."""
    rank = {key: i for i, key in enumerate((*_FIRST_KEYS, None, "seed", "name"))}
    return sorted(keys, key=lambda key: (rank.get(key, len(_FIRST_KEYS)), key))


def _scenario(root: Path, name: str) -> Scenario | None:
    try:
        return scenario_of(run_named(root, name))
    except HTTPException:  # gone since it was listed
        return None
