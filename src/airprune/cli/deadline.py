"""`airprune deadline`: what fits at which deadline, under which clock, for a scenario or a model of one's own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune.cli.console import print_json, stdout_console
from airprune.cli.options import Changes, FleetTable, ScenarioName, TableAsJson, names_in
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UsageError
from airprune.extras import need
from airprune.planning.plan import round_up_ms
from airprune.results.measures import MEASURES
from airprune.text import number

if TYPE_CHECKING:
    from rich.table import Table

    from airprune.studies.deadlines import Deadlines


def deadline(
    scenario: ScenarioName,
    overrides: Changes = None,
    clocks: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Clocks, separated by commas: `own`, `paper`, or boards, e.g. `raspberry-pi-4`.  "
            "[default: own, and another beside it]",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--deadlines-ms",
            metavar="MS",
            help="Deadlines to try, separated by commas.  [default: a range up to whole models]",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:NAME", help="Module of your own: a Python file, and a function, class or module in it."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE:NAME", help="Data of your own, likewise: `(x, y)` or what `airprune.run` takes."),
    ] = None,
    fleet: FleetTable = None,
    as_json: TableAsJson = False,
) -> int:
    """Show which deadlines serve all devices, and what is pruned.

    Plans the first edge round at several deadlines and under two clocks, with the scenario's model, data and scheme.
    Trains nothing. Where an edge has no plan, the fewest devices that block it are counted as not served.

    Example: `airprune deadline device-cpu method=adaptive-work`
    """
    chosen = scenario_from(scenario, overrides or [], fleet=fleet)
    deadlines_s = [_milliseconds(word) / 1e3 for word in names_in(at or "")]
    need("train", "airprune deadline")
    from airprune.studies.deadlines import deadlines

    found = deadlines(
        chosen,
        model=None if model is None else _loaded("--model", model),
        dataset=None if data is None else _loaded("--data", data),
        clocks=None if clocks is None else names_in(clocks),
        deadlines_s=deadlines_s,
    )
    if as_json:
        print_json({"scenario": scenario, **found.as_json()})
        return 0
    for clock, smallest_s in found.smallest_s.items():
        print_table(_table(found, clock))
        stdout_console().print(f"{_sentence(smallest_s)}\n", markup=False, soft_wrap=True)
    return 0


def _milliseconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e12:
        raise UsageError(f"--deadlines-ms must be numbers > 0, got {word!r}. Example: --deadlines-ms 30,100,300")
    return value


def _loaded(option: str, text: str) -> Any:
    """Returns the object of a Python file that FILE:NAME names; functions and classes are called."""
    path, _, name = text.rpartition(":")
    if not path.endswith(".py") or not name:
        raise UsageError(f"{option} must be FILE.py:NAME, got {text!r}. Example: {option} mine.py:build")
    if not Path(path).is_file():
        raise UsageError(f"{option} must name a Python file, got {path}, which does not exist.")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None  # it is a file of Python
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise UsageError(f"{option} must name something in {path}, got {name!r}, which is not there.")
    import torch

    found = getattr(module, name)
    is_called = callable(found) and not isinstance(found, torch.nn.Module)
    return found() if is_called else found


def _table(found: Deadlines, clock: str) -> Table:
    own = ("train all layers", "mean steps") if found.plans_work else (MEASURES["mean_pruning_ratio"].brief, "largest")
    numbers = ("deadline ms", "served", "not served", *own)
    title = f"Scheme {found.scheme}, clock: {clock}"
    table = plain_table(*numbers, "", numbers=numbers, title=title)
    for row in (row for row in found.rows if row.clock == clock):
        result = row.outlook
        some = (
            (f"{result.whole_models:,}", number(result.mean_steps, ".3g"))
            if found.plans_work
            else (number(result.mean_pruning, ".3f"), number(result.max_pruning, ".3f"))
        )
        table.add_row(
            round_up_ms(row.deadline_s),
            f"{result.served / result.num_devices:.1%}",
            f"{result.num_devices - result.served:,}",
            *some,
            row.note,
        )
    return table


def _sentence(smallest_s: float) -> str:
    if smallest_s == float("inf"):
        return "No deadline serves all devices: a device has no uplink rate."
    return f"The smallest deadline that serves all devices: {round_up_ms(smallest_s)} ms."
