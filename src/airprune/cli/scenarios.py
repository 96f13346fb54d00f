"""`airprune scenarios`: the presets, one of them in full, or the JSON schema of all settings."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from airprune.cli.console import print_json
from airprune.cli.options import AsJson, preset_names
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.tables import plain_table, print_table


def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO", help="Preset or TOML file to show in full.", autocompletion=preset_names),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of scenario files.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the presets, or show one with every setting.

    With --schema, prints the JSON schema of scenario files.

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
            sys.stdout.write(explained(scenario, presets().get(name, f"Every setting of {name}.")))
    elif as_json:
        print_json(presets())
    else:
        table = plain_table("preset", "what it is")
        for preset, summary in presets().items():
            table.add_row(preset, summary)
        print_table(table)
