"""`airprune deploy demo`: a whole federation on loopback in one command."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airprune.cli.console import print_json, say
from airprune.cli.options import AsJson
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.tables import plain_table, print_table
from airprune.results.measures import MEASURES

if TYPE_CHECKING:
    from rich.table import Table

    from airprune.deployment.demo import DemoResult, Spread

# The paper's method, and one with error feedback on the devices.
_RUNS = {
    "the paper's": [],
    "4 bits, error feedback": [
        "method=hierfavg",
        "compression.name=quantised",
        "compression.quantised.bits=4",
        "compression.quantised.memory=true",
    ],
}


def demo(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to the preset `deployed`.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep kits, logs and runs in this new folder.  [default: none is kept]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Deploy a small federation on this machine: a cloud, edges and devices, real processes over TLS.

    Shows predicted against measured times, that bytes sent are bytes charged, and that the trained model is the
    simulation's, bit for bit. Runs twice: the paper's method, and 4-bit updates with error feedback; with changes of
    your own, once.
    """
    from airprune.deployment.demo import run_demo
    from airprune.errors import UsageError, WorkFailed

    if out is not None and out.exists():
        raise UsageError(f"{out} already exists; choose another folder.")
    runs = {"changed": overrides} if overrides else _RUNS
    scenarios = {name: scenario_from("deployed", changes) for name, changes in runs.items()}
    with tempfile.TemporaryDirectory(prefix="airprune-demo-", ignore_cleanup_errors=True) as scratch:
        place = out or Path(scratch)
        results = []
        for number, (name, scenario) in enumerate(scenarios.items()):
            folder = place / f"run-{number}"
            folder.mkdir(parents=True)
            results.append(run_demo(scenario, folder, name=name, report=say))
    if as_json:
        print_json([dataclasses.asdict(result) | {"folder": str(result.folder)} for result in results])
    else:
        print_table(_table(results))
        if out is not None:
            say(f"Kept in {out}; look at it with `airprune web {out}`.")
    for result in results:
        if not result.is_as_simulated:
            raise WorkFailed(f"{result.name}: the deployment differs from the simulation.")


def _table(results: list[DemoResult]) -> Table:
    names = [result.name for result in results]
    table = plain_table("", *names, numbers=names, title="Deployed on this machine, beside its simulation")
    row = table.add_row
    row(
        "final model and records",
        *("the simulation's bits" if r.same_model and r.same_records else "DIFFER" for r in results),
    )
    row("bytes sent", *(f"{r.bytes_sent:,}" for r in results))
    row("bytes charged", *(f"{r.bytes_charged:,}" for r in results))
    row("uploads", *(str(r.num_uploads) for r in results))
    row("upload time, measured / predicted", *(_shown(r.uplink) for r in results))
    row("compute time, measured / predicted", *(_shown(r.compute) for r in results))
    row(MEASURES["test_accuracy"].label, *(f"{r.accuracy:.1%}" for r in results))
    row("wall time", *(f"{r.took_s:.0f} s" for r in results))
    return table


def _shown(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.p10:.2f} … {spread.p90:.2f})"
