"""`airprune report`: one page about a run, a comparison or a reproduction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airprune.cli.console import say
from airprune.cli.options import Column, Target


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run, comparison or reproduction folder.")],
    out: Annotated[Path | None, typer.Option(help="The page; by default report.html in the folder.")] = None,
    target: Target = None,
    column: Column = None,
    formats: Annotated[
        str, typer.Option(help="Of the pictures beside the page, separated by commas; png alone is quickest.")
    ] = "png,pdf,svg",
) -> None:
    """Write a self-contained HTML page about a folder: summary, curves, devices, claims, and how to repeat it.

    Pictures are kept beside the page as PNG, PDF, SVG and CSV, tables as LaTeX. An unfinished run
    shows what it has so far.

    Example: `airprune report runs/smoke-seed0 --column single`
    """
    from airprune.results.report.reading import troubles
    from airprune.studies.write_report import write_report

    asked = [name.strip() for name in formats.split(",") if name.strip()]
    typer.echo(str(write_report(folder, out, target=target, paper=column, formats=asked)))
    for trouble in troubles(folder):
        say(f"note: {trouble}")
