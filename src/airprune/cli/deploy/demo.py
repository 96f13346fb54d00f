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
    from airprune.deployment.unequal import PartOfWork, UnequalResult

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

# Of unequal devices: their speeds, and what makes a run of less than a minute.
_SLOWDOWNS = (8.0, 24.0, 72.0, 12.0, 36.0, 60.0)
_UNEQUAL = ["method=adaptive-work", "data.train_samples=1200", "train.batch_size=20", "rounds.global_rounds=4"]


def demo(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to the preset `deployed`.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep kits, logs and runs in this new folder.  [default: none is kept]"),
    ] = None,
    unequal: Annotated[
        bool,
        typer.Option("--unequal", help="Slow devices down unequally, and plan their work with measured times."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Deploy a small federation on this machine: a cloud, edges and devices, real processes over TLS.

    Shows predicted against measured times, that bytes sent are bytes charged, and that the trained model is the
    simulation's, bit for bit. Runs twice: the paper's method, and 4-bit updates with error feedback; with changes of
    your own, once.

    With --unequal, devices compute at different speeds and method `adaptive-work` plans trained layers and local steps
    of each from measured times: shows the work, whether the plan was met, and that a replay in simulation ends in the
    same bits.
    """
    from airprune.deployment.demo import run_demo
    from airprune.errors import UsageError, WorkFailed

    if out is not None and out.exists():
        raise UsageError(f"{out} already exists; choose another folder.")
    if unequal:
        return _unequal(overrides or [], out, as_json=as_json)
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
    return None


def _unequal(overrides: list[str], out: Path | None, *, as_json: bool) -> None:
    from airprune.deployment.unequal import run_unequal
    from airprune.errors import WorkFailed

    scenario = scenario_from("deployed", [*_UNEQUAL, *overrides])
    with tempfile.TemporaryDirectory(prefix="airprune-demo-", ignore_cleanup_errors=True) as scratch:
        place = out or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        result = run_unequal(scenario, place, _SLOWDOWNS, report=say)
    if as_json:
        print_json(dataclasses.asdict(result) | {"folder": str(result.folder)})
    else:
        print_table(_devices_table(result))
        print_table(_summary_table(result))
        if out is not None:
            say(f"Kept in {out}; look at it with `airprune web {out}`.")
    if not result.is_replayed:
        raise WorkFailed("The replay differs from the deployment.")


def _devices_table(result: UnequalResult) -> Table:
    columns = ("slowed by", "work: rounds, local steps", "predicted", "measured", "ratio", "in time")
    table = plain_table("device", *columns, numbers=["slowed by", "predicted", "measured", "ratio"])
    for one in result.devices:
        table.add_row(
            one.name,
            f"{one.slowdown:g} ×",
            "\n".join(map(_work, one.work)),
            f"{one.predicted_s:.2f} s",
            f"{one.measured_s:.2f} s",
            f"{one.ratio:.2f}",
            f"{one.num_met} of {one.num_rounds}",
        )
    return table


def _work(part: PartOfWork) -> str:
    layers = f"from layer {part.first_trained} on" if part.first_trained else "all layers"
    if part.last_trained is not None:
        layers = f"layers {part.first_trained} to {part.last_trained}"
    fewest, most = part.fewest_steps, part.most_steps
    return f"{layers}: {part.num_rounds}, {fewest}" + (f" to {most}" if most > fewest else "")


def _summary_table(result: UnequalResult) -> Table:
    table = plain_table("", "deployment", numbers=())
    table.add_row("devices are slowed by", "waiting after their training")
    table.add_row("cost of a step by part, measured", " · ".join(f"{cost:.2f}" for cost in result.part_cost) or "none")
    table.add_row("deadlines of the edge rounds", " ".join(f"{time_s:.2f}" for time_s in result.deadline_s) + " s")
    table.add_row("uploads in time", f"{result.num_met} of {result.num_uploads}")
    table.add_row("replay in simulation", "equal bits" if result.is_replayed else "DIFFERS")
    table.add_row(MEASURES["test_accuracy"].label, f"{result.accuracy:.1%}")
    table.add_row("wall time", f"{result.took_s:.0f} s")
    return table


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
