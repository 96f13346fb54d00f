"""`airprune report`: one HTML file about a run, a comparison, a sweep or a reproduction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airprune.cli.console import say
from airprune.cli.options import Column, Target, names_in


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run, comparison, sweep or reproduction.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="HTML file.  [default: report.html in DIR]")] = None,
    target: Target = None,
    column: Column = None,
    formats: Annotated[
        str, typer.Option(metavar="NAMES", help="Formats of the figures beside the report; png alone is quickest.")
    ] = "png,pdf,svg",
) -> None:
    """Write an HTML report of a run, comparison, sweep or reproduction.

    It shows summary, curves, devices, claims, and how to repeat the work. Figures are kept beside it as PNG, PDF, SVG
    and CSV, tables as LaTeX. Of an unfinished run it shows the rounds that are recorded.

    Example: `airprune report runs/smoke-seed0 --column single`
    """
    from airprune.results.report.reading import troubles
    from airprune.studies.write_report import write_report

    typer.echo(str(write_report(folder, out, target=target, paper=column, formats=names_in(formats))))
    for trouble in troubles(folder):
        say(f"note: {trouble}")
