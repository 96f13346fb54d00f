"""Sections that several kinds of report have in common."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airprune.results.figures.curves import curve_panel
from airprune.results.measures import AXES, CURVE_COLUMNS, MEASURES, Measure
from airprune.results.report.markup import Markup, element, facts_table, join, note
from airprune.results.report.page import Place, Section
from airprune.results.report.reading import Row
from airprune.text import capitalised

# Panels of a report in reading order: (measure, against).
PANELS = (
    *(("test_accuracy", against) for against in AXES),
    *(("test_loss", against) for against in AXES),
    ("mean_pruning_ratio", "global_round"),
    ("train_loss", "global_round"),
)


def curve_rows(series: str, seed: int | None, rounds: Iterable[Row]) -> list[Row]:
    """Returns a run's lines of the tidy table of curves."""
    return [{"series": series, "seed": seed, **{name: row[name] for name in CURVE_COLUMNS}} for row in rounds]


def curves_section(
    runs_by_name: Mapping[str, list[list[Row]]],
    place: Place,
    *,
    about: str = "",
    measures: Mapping[str, Measure] = MEASURES,
) -> Section:
    """Returns the section with every measure against rounds, time, bits and joules."""
    drawn = {name: [run for run in runs if run] for name, runs in runs_by_name.items()}
    drawn = {name: runs for name, runs in drawn.items() if runs}
    panels = [
        _panel(drawn, place, measure=measure, against=against, measures=measures)
        for measure, against in PANELS
        if _has_values(drawn, measure) and _has_values(drawn, against)
    ]
    if not panels:
        return Section("Curves", [note("No global round has been evaluated yet.")])
    notes = [note(about)] if about else []
    return Section("Curves", [*notes, element("div", *panels, class_="grid"), *_for_papers(place)])


def _has_values(runs_by_name: Mapping[str, Sequence[Sequence[Row]]], measure: str) -> bool:
    return any(row.get(measure) is not None for runs in runs_by_name.values() for run in runs for row in run)


def _for_papers(place: Place) -> list[Markup]:
    """Returns a note on how to make the figures in other formats."""
    if place.formats:
        return []
    words = ["airprune", "report", str(place.folder), "--column", "single"]
    return [note("For a paper, ", element("code", shlex.join(words)), " adds PDF and SVG, 3.5 inches wide.")]


def _panel(
    runs_by_name: Mapping[str, list[list[Row]]],
    place: Place,
    *,
    measure: str,
    against: str,
    measures: Mapping[str, Measure],
) -> Markup:
    figure = curve_panel(runs_by_name, measure=measure, against=against, paper=place.paper, measures=measures)
    drawn, axis = measures[measure], measures[against]
    title = f"{capitalised(drawn.label)} against {axis.label}"
    ends = "; ".join(_ends(name, runs, measure) for name, runs in runs_by_name.items())
    name = f"{drawn.stem}-{axis.stem}"
    return place.add_figure(figure, name, alt=f"{title}. {ends}.", caption=f"{title}.", table="curves.csv")


def _ends(name: str, runs: Sequence[Sequence[Row]], measure: str) -> str:
    """Describes a curve: its start and its end, averaged over seeds."""
    points = [(run[0].get(measure), run[-1].get(measure)) for run in runs]
    whole = [(first, last) for first, last in points if first is not None and last is not None]
    if not whole:
        return f"{name}: no value at one of its ends"
    first, last = (sum(values) / len(whole) for values in zip(*whole, strict=True))
    return f"{name}: from {first:.4g} to {last:.4g}"


def environment_section(environment: Mapping[str, Any], about: str) -> Section:
    if not environment:
        return Section("Environment", [note("environment.json is missing or cannot be read.")])
    return Section("Environment", [note(about), facts_table(environment, label="Environment")])


def commands(lines: Iterable[Sequence[str]]) -> Markup:
    """Returns commands to copy into a shell."""
    text = "\n".join(shlex.join(words) for words in lines)
    return element("pre", element("code", text), class_="command", tabindex="0")


def repeat_section(lines: Sequence[Sequence[str]], *notes: str) -> Section:
    return Section("Repeat it", [join([commands(lines), *map(note, notes)])])


def beside(folder: Path) -> str:
    """Returns a new folder's name, for repeating the runs of `folder`."""
    return f"{folder}-again"


def seeds_text(seeds: Sequence[int]) -> str:
    """Returns seeds as text: 0, 1, 2, 5 → 0-2,5."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
