"""Arguments and options that mean the same in several commands, each told once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class PaperWidth(StrEnum):
    """As `figures.PaperColumn`, which needs a drawing library."""

    single = "single"
    double = "double"


def formats_for(column: PaperWidth | None) -> tuple[str, ...]:
    """Of pictures beside a page that nobody asked for: those of a paper only if they are to fit its column."""
    return () if column is None else ("pdf", "svg")


def preset_names(incomplete: str) -> list[str]:
    """What a shell may complete a scenario's name to, besides files."""
    from airprune.scenario import presets

    return [name for name in presets() if name.startswith(incomplete)]


ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A preset's name or a TOML file.", autocompletion=preset_names)
]
Engine = Annotated[str | None, typer.Option(help="serial, processes or dask (a cluster); the result is the same.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Worker processes; by default one per core.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Of a Dask cluster: `tls://host:8786` or its scheduler file; implies dask, which else starts its own."
    ),
]
Tls = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="The cluster's certificates, made by `airprune cluster certificates`, for tls:// addresses.",
    ),
]
FleetTable = Annotated[
    Path | None,
    typer.Option(metavar="TABLE", help="Train this fleet, a table as of `airprune plan`; the same as network.table."),
]
Target = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        help="Also tell time, bits and joules until this test accuracy, e.g. 0.7; by default rounds.target_accuracy.",
    ),
]
Column = Annotated[
    PaperWidth | None,
    typer.Option(help="Pictures for one or both columns of an IEEE paper, 3.5 or 7.16 inches wide; PNG, PDF and SVG."),
]
Log = Annotated[
    list[str] | None,
    typer.Option(metavar="LOGGER", help="Also log to `tensorboard`, `wandb` or `mlflow`; may be given several times."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TableAsJson = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]
