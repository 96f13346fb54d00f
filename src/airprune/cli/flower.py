"""`airprune flower`: an unmodified Flower app on a simulated network."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import (
    Changes,
    Engine,
    FleetTable,
    LastRoundAsJson,
    Resume,
    Scheduler,
    Target,
    Tls,
    Workers,
    preset_names,
)
from airprune.cli.progress import show_progress
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.stopping import STOPPED
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UsageError
from airprune.results.measures import MEASURES

if TYPE_CHECKING:
    from airprune.flower.app import FlowerApp
    from airprune.flower.app_run import Finished
    from airprune.scenario import Scenario

# Columns of the tables, beside their first.
_COLUMNS = ("time_s", "uploaded_bits", "energy_j", "test_accuracy", "test_loss", "participants", "left_out")


def flower(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Folder of the app, with its pyproject.toml.")] = ".",
    overrides: Changes = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="SCENARIO",
            help="Preset or TOML file to begin with.  [default: the paper's network, no edges, no deadline]",
            autocompletion=preset_names,
        ),
    ] = None,
    edges: Annotated[
        int | None,
        typer.Option(metavar="K", min=0, help="Edges, each with the app's own strategy; the cloud takes their mean."),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of clients.  [default: the app's num-supernodes]")
    ] = None,
    run_config: Annotated[
        str, typer.Option(metavar="WORDS", help="Changes to the app's config, e.g. `num-server-rounds=5 lr=0.1`.")
    ] = "",
    compute: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="Compute times: `measured` per call, `counted` FLOPs, of the fleet `table`, `paper` for Eq. (9); "
            "`auto`: table, else counted, else measured.",
        ),
    ] = "auto",
    compare: Annotated[
        bool, typer.Option("--compare", help="Run with and without edges, deadline and selection; print one table.")
    ] = False,
    target: Target = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run folder.  [default: runs/NAME-flower]")] = None,
    resume: Resume = False,
    fleet: FleetTable = None,
    engine: Engine = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    tls: Tls = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the app's own log.")] = False,
    as_json: LastRoundAsJson = False,
) -> None:
    """Run a Flower app, as it is, on a simulated wireless network.

    Every message takes time, bits and joules; replies that miss the deadline are not returned to the app's server.

    Example: `airprune flower path/to/app radio.bandwidth_hz=1e6 plan.deadline_s=2 --edges 5`
    """
    from airprune.flower.app import FlowerApp, config_words, need_flower
    from airprune.flower.app_run import default_scenario, scenario_of

    if "=" in path and not Path(path).exists():
        path, overrides = ".", [path, *(overrides or [])]
    need_flower("airprune flower")
    app = FlowerApp.read(path).with_config(config_words(run_config))
    changes = [*(overrides or []), *([] if target is None else [f"rounds.target_accuracy={target}"])]
    base = default_scenario() if scenario is None else scenario
    chosen = scenario_from(base, changes, engine=engine, workers=workers, scheduler=scheduler, tls=tls, fleet=fleet)
    chosen = scenario_of(app, chosen, edges=edges, devices=devices)
    if out is None:
        out = Path("runs") / f"{app.name}-flower{'-compare' if compare else ''}"
    if not verbose:
        importlib.import_module("flwr.common")  # sets the level of its log when it is imported
        logging.getLogger("flwr").setLevel(logging.WARNING)
    if compare:
        _compare(app, chosen, compute, out, resume, as_json)
        return
    finished = _run(app, chosen, compute, out, resume, app.name)
    _print(finished, out, as_json)


def _run(app: FlowerApp, scenario: Scenario, compute: str, out: Path, resume: bool, label: str) -> Finished:
    from airprune.flower.app_run import run
    from airprune.runs.layout import RunFolder

    done = len(RunFolder(out).records()) if resume else 0
    try:
        with _progress(scenario, label, done, app.num_rounds) as show:
            return run(
                app,
                scenario,
                out=out,
                resume=resume,
                devices=scenario.num_devices,
                compute=compute,  # type: ignore[arg-type]
                on_record=show,
            )
    except KeyboardInterrupt:
        say(f"Stopped; {out} keeps what is done. Continue with the same command and --resume.")
        raise typer.Exit(STOPPED) from None


@contextlib.contextmanager
def _progress(
    scenario: Scenario, label: str, done: int, num_rounds: int | None
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yields a function that shows each record as it comes."""
    if num_rounds is not None:
        scenario = scenario.with_("rounds.global_rounds", -(-num_rounds // max(scenario.edge_rounds_of)))
    waiting: deque[dict[str, Any]] = deque()

    def records() -> Iterator[dict[str, Any]]:
        while True:
            yield waiting.popleft()

    shown = show_progress(records(), scenario, label=label, done=done)

    def show(record: dict[str, Any]) -> None:
        waiting.append(record)
        next(shown)

    try:
        yield show
    finally:
        shown.close()  # type: ignore[attr-defined]


def _print(finished: Finished, out: Path, as_json: bool) -> None:
    from airprune.cli.run import target_costs, to_target
    from airprune.flower.app_run import compute_text
    from airprune.results.time_to_target import evaluations_in
    from airprune.runs.layout import RunFolder
    from airprune.studies.write_report import write_report

    rounds = [record for record in finished.records if record["kind"] == "global"]
    target = finished.scenario.rounds.target_accuracy
    tests = [] if target is None else evaluations_in(RunFolder(out))
    if as_json:
        facts = {"folder": str(out), "compute_from": list(finished.compute_from), **rounds[-1]}
        print_json(facts | ({} if target is None else {"to_target": target_costs(tests, target)}))
        return
    table = _table("round", "Since the start, after each global round", compute_text(finished.compute_from))
    for record in rounds:
        table.add_row(str(record["global_round"]), *_cells(record))
    print_table(table)
    if target is not None:
        stdout_console().print(to_target(tests, target), markup=False)
    say(f"Report: {write_report(out)}")


def _table(first: str, title: str, caption: str) -> Any:
    briefs = [MEASURES[name].brief if name in MEASURES else name for name in _COLUMNS]
    return plain_table(first, *briefs, numbers=briefs, title=title, caption=caption)


def _cells(record: dict[str, Any]) -> list[str]:
    return [
        MEASURES[name].text(record.get(name)) if name in MEASURES else str(record.get(name, "")) for name in _COLUMNS
    ]


def _compare(app: FlowerApp, scenario: Scenario, compute: str, out: Path, resume: bool, as_json: bool) -> None:
    """Runs the app with none, each and all of edges, deadline and selection, as far as they are given."""
    from airprune.flower.app_run import compute_text, variants_of
    from airprune.runs.layout import RunFolder
    from airprune.studies.write_report import write_report

    variants = variants_of(scenario)
    if len(variants) < 2:
        raise UsageError(
            "--compare needs something to leave out: give --edges K, plan.deadline_s or selection.name, or several."
        )
    rows, rules = {}, set[str]()
    for name, variant in variants.items():
        folder = out / f"{name}-seed{variant.seed}"
        has_run = RunFolder(folder).has_run
        if has_run and not resume:
            raise UsageError(f"{folder} already holds a run; continue with --resume or choose another --out.")
        finished = _run(app, variant, compute, folder, has_run, name)
        rows[name] = [record for record in finished.records if record["kind"] == "global"][-1]
        rules |= set(finished.compute_from)
    if as_json:
        print_json(rows)
        return
    table = _table("variant", "Last global round", compute_text(tuple(sorted(rules))))
    for name, record in rows.items():
        table.add_row(name, *_cells(record))
    print_table(table)
    say(f"Report: {write_report(out)}")
