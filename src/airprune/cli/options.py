"""Arguments and options that mean the same in several commands, each described once, and readers of their values."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from airprune.errors import InvalidValue, UsageError


class PaperWidth(StrEnum):
    """As `figures.PaperColumn`, which needs a drawing library."""

    single = "single"
    double = "double"


def formats_for(column: PaperWidth | None) -> tuple[str, ...]:
    """Returns the formats of figures beside an automatic report: those of a paper only to fit its column."""
    return () if column is None else ("pdf", "svg")


def preset_names(incomplete: str) -> list[str]:
    """Returns the presets to which a shell may complete a scenario's name."""
    from airprune.scenario import presets

    return [name for name in presets() if name.startswith(incomplete)]


def names_in(text: str) -> list[str]:
    """Returns the names in a text that separates them by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def named_values(option: str, words: Sequence[str], form: str, example: str) -> dict[str, str]:
    """Returns the values of an option that is given as `form`, e.g. NAME=HOST, once for each name."""
    found: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if not (name and value):
            raise InvalidValue(option, f"must be {form}", repr(word), f"Example: {option} {example}")
        if name in found:
            raise InvalidValue(option, "must be given once for each name", f"{name} twice")
        found[name] = value
    return found


def schedule_name(quick: bool, full: bool) -> str:
    if quick and full:
        raise UsageError("--quick and --full exclude each other; give one or neither.")
    return "quick" if quick else "full" if full else "default"


ScenarioName = Annotated[
    str,
    typer.Argument(metavar="SCENARIO", help="Name of a preset, or a TOML file.", autocompletion=preset_names),
]
Changes = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Changes to the scenario, e.g. `plan.deadline_s=0.04 seed=3`."),
]
Methods = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Methods (`airprune methods`), separated by commas.")
]
Engine = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="`serial`, `processes` or `dask` (a cluster); the result is the same."),
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Worker processes.  [default: one per core]", show_default=False)
]
RunsEngine = Annotated[
    str | None,
    typer.Option("--engine", metavar="NAME", help="Where whole runs go: `serial`, `processes` or `dask`."),
]
RunsAtATime = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=1, help="Runs side by side.  [default: one per core]"),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Scheduler of a Dask cluster: `tls://host:8786` or its scheduler file; implies `--engine dask`.",
    ),
]
Tls = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Certificates of the cluster (`airprune cluster certificates`), for tls://."),
]
FleetTable = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Fleet table as `airprune plan` reads it; the same as `network.table`."),
]
Target = Annotated[
    float | None,
    typer.Option(
        metavar="ACCURACY",
        min=0.0,
        max=1.0,
        help="Also show time, bits and energy to this test accuracy, e.g. 0.7.  [default: `rounds.target_accuracy`]",
    ),
]
Column = Annotated[
    PaperWidth | None,
    typer.Option(help="Figures for one or both columns of an IEEE paper (3.5 or 7.16 inches), as PNG, PDF and SVG."),
]
Log = Annotated[
    list[str] | None,
    typer.Option(metavar="LOGGER", help="Also log to `tensorboard`, `wandb` or `mlflow`; may be repeated."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TableAsJson = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]
LastRoundAsJson = Annotated[bool, typer.Option("--json", help="Print the last global round as JSON.")]
