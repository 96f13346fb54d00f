"""Run folders as pandas frames."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from airprune import files
from airprune.checks import path_of
from airprune.errors import UnknownName, UsageError
from airprune.extras import needed
from airprune.results.report.reading import Run, is_run, read_run, variant_and_seed, variant_order
from airprune.results.rows import Row, device_rows, edge_row, global_rows
from airprune.rounds.records import EdgeRecord
from airprune.settings.toml_text import flat

if TYPE_CHECKING:
    import pandas

Level = Literal["global", "edge", "device"]
LEVELS: tuple[Level, ...] = ("global", "edge", "device")
_DEPTH = 4
# Keys that say where and how a run was done, not what was run.
_HIDDEN = ("seed", "name", "data.data_dir")


def load_runs(folder: str | Path | Iterable[str | Path], *, level: Level = "global") -> pandas.DataFrame:
    """Reads all runs in a folder as one tidy frame: a row per run and global round.

    Columns: `run` (its folder), `series` (the variant of a comparison or a sweep, else the scheme), `seed`, `finished`;
    every key of the scenarios in which the runs differ; then the measures. What was counted since the start begins with
    `total_`, the same of one round with `round_`; see `airprune.results.rows`. An unfinished run has the rounds so far.

    Args:
      folder: a run, a comparison, a sweep, or any folder with such folders in it; or several.
      level: "edge": a row per edge round; "device": per device and edge round.
    """
    pandas = needed("pandas", extra="analysis", what="load_runs")
    if level not in LEVELS:
        raise UnknownName("load_runs.level", str(level), LEVELS)
    several = folder if isinstance(folder, Iterable) and not isinstance(folder, str | Path | bytes) else [folder]
    roots = [path_of("load_runs.folder", one, what="a folder, or several") for one in several]
    found = [(root, path) for root in roots for path in _run_folders(root, _DEPTH)]
    if not found:
        raise UsageError(f"load_runs.folder must hold at least one run, got {', '.join(map(str, roots))}.")
    runs = [(root, read_run(path)) for root, path in found]
    settings = [_settings(run) for _, run in runs]
    differ = _differing(settings)
    rows = []
    for (root, run), values in zip(runs, settings, strict=True):
        about = _about(root, run, values) | {key: _cell(values.get(key)) for key in differ}
        rows += [about | row for row in _rows(run, level)]
    return pandas.DataFrame(rows).dropna(axis="columns", how="all")  # what no run has measured


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    if not folder.is_dir():
        return
    if is_run(folder):
        yield folder
    elif depth > 0:
        place = {name: index for index, name in enumerate(variant_order(folder))}
        children = [child for child in folder.iterdir() if files.is_folder(child) and not child.name.startswith(".")]
        for child in sorted(children, key=lambda child: _order(child.name, place)):
            yield from _run_folders(child, depth - 1)


def _order(name: str, place: Mapping[str, int]) -> tuple[int, str, int]:
    variant, seed = variant_and_seed(name) or (name, 0)
    return place.get(variant, len(place)), variant, seed


def _settings(run: Run) -> dict[str, Any]:
    """Reads the settings from scenario.toml, so that runs of unregistered components can be read too."""
    try:
        return flat(tomllib.loads(run.scenario_text))
    except tomllib.TOMLDecodeError:
        return {}


def _differing(settings: list[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for values in settings for key in values)
    shown = [key for key in keys if key not in _HIDDEN and not key.startswith("engine.")]
    return [key for key in shown if any(values.get(key) != settings[0].get(key) for values in settings)]


def _about(root: Path, run: Run, values: Mapping[str, Any]) -> Row:
    name = run.path.relative_to(root).as_posix() if run.path != root else run.path.name
    variant = variant_and_seed(run.path.name) if run.path != root else None
    series = variant[0] if variant else str(values.get("plan.scheme", run.path.name))
    return {"run": name, "series": series, "seed": values.get("seed"), "finished": run.is_finished}


def _cell(value: Any) -> Any:
    """Returns a cell: TOML spells out None, and lists cannot be grouped by."""
    return None if value == "none" else tuple(value) if isinstance(value, list) else value


def _rows(run: Run, level: Level) -> list[Row]:
    if level == "global":
        return global_rows(run.records)
    edge_records = [record for record in run.records if isinstance(record, EdgeRecord)]
    if level == "edge":
        return [edge_row(record) for record in edge_records]
    return [row for record in edge_records for row in device_rows(record)]
