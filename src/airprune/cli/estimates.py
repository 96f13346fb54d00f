"""Means over seeds as a table for people, and as JSON for machines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from airprune.estimates import Estimate

_COLUMNS = {
    "test_accuracy": ("accuracy %", 100.0, ".2f"),
    "test_loss": ("test loss", 1.0, ".4f"),
    "time_s": ("simulated s", 1.0, ".3f"),
    "uploaded_weights": ("uploaded Mweights", 1e-6, ".2f"),
    "energy_j": ("energy J", 1.0, ".2f"),
    "mean_pruning_ratio": ("mean pruning", 1.0, ".3f"),
}


def estimates_table(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], Mapping[str, Estimate]]]) -> Table:
    """One row per (what it is, under `headings`; what was measured of it)."""
    shown = Table(
        title="Last global round, mean ± 95 % interval",
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    for heading in headings:
        shown.add_column(heading, no_wrap=True)
    for heading, _, _ in _COLUMNS.values():
        shown.add_column(heading, justify="right")
    for names, estimates in rows:
        cells = (_cell(estimates.get(column), scale, form) for column, (_, scale, form) in _COLUMNS.items())
        shown.add_row(*map(escape, names), *cells)
    return shown


def estimates_json(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {
        column: {"mean": value.mean, "half_width_95": None if math.isnan(value.half_width) else value.half_width}
        for column, value in estimates.items()
    }


def _cell(value: Estimate | None, scale: float, form: str) -> str:
    if value is None:
        return "–"
    mean = format(value.mean * scale, form)
    return mean if math.isnan(value.half_width) else f"{mean} ± {format(value.half_width * scale, form)}"
