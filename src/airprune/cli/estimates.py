"""Means over seeds as a table for people, and as JSON for machines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from airprune.results.measures import MEASURES, SUMMARY
from airprune.results.statistics import Estimate, estimate_text
from airprune.text import clocks_text


def estimates_table(
    headings: Sequence[str], rows: Iterable[tuple[Sequence[str], Mapping[str, Estimate]]], *, clocks: Iterable[str]
) -> Table:
    """One row per (what it is, under `headings`; what was measured of it); `clocks` are those of the runs."""
    shown = Table(
        title="Last global round, mean ± 95 % interval",
        title_justify="left",
        caption=clocks_text(clocks),
        caption_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    for heading in headings:
        shown.add_column(heading, no_wrap=True)
    for name in SUMMARY:
        shown.add_column(MEASURES[name].brief, justify="right")
    for names, estimates in rows:
        shown.add_row(*map(escape, names), *(estimate_text(estimates.get(name), name) for name in SUMMARY))
    return shown


def estimates_json(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {
        column: {"mean": value.mean, "half_width_95": None if math.isnan(value.half_width) else value.half_width}
        for column, value in estimates.items()
    }
