"""`airprune reproduce`: the paper's tables and figures."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from airprune.cli.console import print_json, stdout_console
from airprune.paper.table2 import Cell, table2


class Artefact(StrEnum):
    table2 = "table2"


def reproduce(
    what: Annotated[Artefact, typer.Argument(help="The table or figure of the paper.")],
    placements: Annotated[int, typer.Option(min=1, max=100_000, help="Random placements to average over.")] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Reproduce a table of the paper and show it beside the printed numbers."""
    cells = table2(range(placements))
    if as_json:
        rows = [{**dataclasses.asdict(cell), "deviation": cell.deviation} for cell in cells]
        print_json({"artefact": what.value, "placements": placements, "cells": rows})
        return
    stdout_console().print(_table(cells, placements))


def _table(cells: list[Cell], placements: int) -> Table:
    table = Table(
        title=f"Table II: latency of one edge round in ms, mean ± spread over {placements} placements",
        title_justify="left",
        header_style="bold",
    )
    for heading in ("network", "scheme"):
        table.add_column(heading)
    for heading in ("airprune", "paper", "deviation"):
        table.add_column(heading, justify="right")
    for cell in cells:
        table.add_row(
            cell.topology,
            cell.scheme,
            f"{cell.mean_ms:.1f} ± {cell.spread_ms:.1f}",
            f"{cell.paper_ms:g}" + (f" ± {cell.paper_spread_ms:g}" if cell.paper_spread_ms else ""),
            f"{round(cell.deviation, 3) + 0.0:+.1%}",
            end_section=cell.scheme == "no-pruning",
        )
    return table
