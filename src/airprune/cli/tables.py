"""Tables on stdout, one look and no word cut at any width; means over seeds and costs to a target as such tables."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from airprune.cli.console import stdout_console
from airprune.results.measures import MEASURES, SUMMARY, TO_TARGET
from airprune.results.statistics import Estimate, difference_text, estimate_text
from airprune.results.time_to_target import ToTarget, target_text
from airprune.text import MISSING, clocks_text

_GAP = 2  # blanks between columns
_FOLDED = 20  # characters below which even a column that may cut words, such as paths, is not made narrower


def plain_table(*headings: str, numbers: Iterable[str] = (), paths: Iterable[str] = (), **options: Any) -> Table:
    """Returns an empty table without lines; cells of `numbers` are aligned right and never wrap, `paths` may be cut."""
    table = Table(
        box=None, pad_edge=False, header_style="bold", title_justify="left", caption_justify="left", **options
    )
    for heading in headings:
        overflow: Any = "fold" if heading in paths else "ellipsis"
        table.add_column(heading, justify="right" if heading in numbers else "left", overflow=overflow)
    return table


def print_table(table: Table, *, keys: int = 1) -> None:
    """Prints a table whose words stay whole: cells wrap, and a table that is still too wide comes in parts.

    The first `keys` columns name the rows: they never wrap, and each part repeats them. A file or a pipe of unknown
    width gets the table in one part.
    """
    console = stdout_console()
    for column in table.columns[:keys]:
        column.no_wrap = True
    least, natural = zip(*(_widths(column, console) for column in table.columns), strict=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, sum(least) + _GAP * len(least))
    parts = _parts(least, console.width, keys)
    for part in parts:
        shown = table if len(parts) == 1 else _part_of(table, part)
        shown.title = table.title if part is parts[0] else None
        shown.caption = table.caption if part is parts[-1] else None
        for column, width in zip(shown.columns, _fitted(part, least, natural, console.width), strict=True):
            column.width = width
        console.print(shown)


def _widths(column: Any, console: Console) -> tuple[int, int]:
    """Returns the least width of a column that cuts no word, and the width at which nothing wraps."""
    texts = [_text(cell, console) for cell in (column.header, *column.cells)]
    longest = max((cell_len(line) for text in texts for line in text.split("\n")), default=0)
    words = max((cell_len(word) for text in texts for word in text.split()), default=0)
    if column.no_wrap:
        return longest, longest
    cells = max((cell_len(text) for text in texts[1:]), default=0) if column.justify == "right" else 0
    return max(min(words, _FOLDED) if column.overflow == "fold" else words, cells), longest


def _text(cell: Any, console: Console) -> str:
    return cell.plain if isinstance(cell, Text) else console.render_str(str(cell)).plain


def _parts(least: Sequence[int], width: int, keys: int) -> list[list[int]]:
    """Returns the columns of each part, as places in the table."""
    parts = [list(range(keys))]
    for place in range(keys, len(least)):
        together = [*parts[-1], place]
        if len(parts[-1]) > keys and sum(least[i] + _GAP for i in together) - _GAP > width:
            parts.append([*range(keys), place])
        else:
            parts[-1] = together
    return parts


def _part_of(table: Table, places: Sequence[int]) -> Table:
    part = plain_table()
    for place in places:
        column = table.columns[place]
        part.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow)
    for number, cells in enumerate(zip(*(list(table.columns[place].cells) for place in places), strict=True)):
        part.add_row(*cells, style=table.rows[number].style)
    return part


def _fitted(part: Sequence[int], least: Sequence[int], natural: Sequence[int], width: int) -> list[int]:
    """Returns the natural widths, the widest made narrower, down to the least, until they fit."""
    widths = {place: natural[place] for place in part}
    room = width - _GAP * (len(part) - 1)
    while sum(widths.values()) > room:
        loose = [place for place in part if widths[place] > least[place]]
        if not loose:
            break
        widths[max(loose, key=widths.__getitem__)] -= 1
    return list(widths.values())


def estimates_table(
    headings: Sequence[str], rows: Iterable[tuple[Sequence[str], Mapping[str, Estimate]]], *, clocks: Iterable[str]
) -> Table:
    """Returns one row per (names under `headings`, means over seeds); `clocks` are those of the runs."""
    briefs = [MEASURES[name].brief for name in SUMMARY]
    title = "Last global round, mean ± 95 % interval"
    table = plain_table(*headings, *briefs, numbers=briefs, title=title, caption=clocks_text(clocks))
    for names, estimates in rows:
        table.add_row(*map(escape, names), *(estimate_text(estimates.get(name), name) for name in SUMMARY))
    return table


def differences_table(
    headings: Sequence[str], rows: Iterable[tuple[Sequence[str], Mapping[str, Estimate]]], reference: str
) -> Table:
    """Returns one row per (names under `headings`, paired differences to the reference)."""
    briefs = [MEASURES[name].brief for name in SUMMARY]
    title = f"Last global round minus that of {escape(reference)}, paired by seed, mean ± 95 % interval"
    table = plain_table(*headings, *briefs, numbers=briefs, title=title)
    for names, found in rows:
        table.add_row(*map(escape, names), *(difference_text(found.get(name), name) for name in SUMMARY))
    return table


def estimates_json(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {
        column: {"mean": value.mean, "half_width_95": None if math.isnan(value.half_width) else value.half_width}
        for column, value in estimates.items()
    }


def target_table(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], ToTarget]], target: float) -> Table:
    """Returns one row per (names under `headings`, costs to the target), with ratios if there is a reference."""
    rows = list(rows)
    reference = next((row.reference for _, row in rows if row.reference), None)
    costs = ["reached", *(MEASURES[name].brief for name in TO_TARGET)]
    costs += [] if reference is None else [f"time ÷ {escape(reference)}"]
    title = f"To {target_text(target)} test accuracy: mean ± 95 % interval; median if a seed has not reached it"
    table = plain_table(*headings, *costs, numbers=costs, title=title)
    for names, row in rows:
        ratio = [] if reference is None else [row.time_ratio.text if row.time_ratio else MISSING]
        table.add_row(
            *map(escape, names), row.reached_text, *(row.costs[name].text(name) for name in TO_TARGET), *ratio
        )
    return table
