"""`airprune scenarios`: the presets, one of them in full, or the schema of all settings."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.table import Table

from airprune.cli.console import print_json, stdout_console
from airprune.cli.options import AsJson, preset_names
from airprune.cli.scenario_argument import scenario_from


def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]", help="A preset or TOML file to show in full.", autocompletion=preset_names
        ),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of scenario files.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the presets, show one with every setting, or print the JSON schema.

    Example: `airprune scenarios paper > mine.toml`
    """
    from airprune.scenario import Scenario, presets
    from airprune.scenario.explained import explained

    if schema:
        print_json(Scenario.json_schema())
    elif name is not None:
        scenario = scenario_from(name, [])
        if as_json:
            print_json(scenario.to_dict())
        else:
            sys.stdout.write(explained(scenario, _about(name)))
    elif as_json:
        print_json(presets())
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("preset", no_wrap=True)
        table.add_column("what it is")
        for preset, summary in presets().items():
            table.add_row(preset, summary)
        stdout_console().print(table)


def _about(name: str) -> str:
    from airprune.scenario import presets

    return presets().get(name, f"Every setting of {name}.")
