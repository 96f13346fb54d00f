"""What it took to reach the target accuracy, as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.markup import escape
from rich.table import Table

from airprune.results.measures import MEASURES, TO_TARGET
from airprune.results.time_to_target import ToTarget, target_text
from airprune.text import MISSING


def target_table(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], ToTarget]], target: float) -> Table:
    """One row per (what it is, under `headings`; what it took); ratios of times if there is a reference."""
    rows = list(rows)
    shown = Table(
        title=f"To {target_text(target)} test accuracy: mean ± 95 % interval; median if a seed has not reached it",
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    for heading in headings:
        shown.add_column(heading, no_wrap=True)
    for heading in ("reached", *(MEASURES[name].brief for name in TO_TARGET)):
        shown.add_column(heading, justify="right")
    reference = next((row.reference for _, row in rows if row.reference), None)
    if reference is not None:
        shown.add_column(f"time ÷ {escape(reference)}", justify="right")
    for names, row in rows:
        ratio = [] if reference is None else [row.time_ratio.text if row.time_ratio else MISSING]
        costs = [row.costs[name].text(name) for name in TO_TARGET]
        shown.add_row(*map(escape, names), row.reached_text, *costs, *ratio)
    return shown
