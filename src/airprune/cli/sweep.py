"""`airprune sweep`: whole runs side by side, for every combination of values and seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune.cli.campaign import end_with, run_missing
from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import (
    Column,
    RunsAtATime,
    RunsEngine,
    ScenarioName,
    Scheduler,
    TableAsJson,
    Target,
    Tls,
    formats_for,
)
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.tables import estimates_json, estimates_table, print_table, target_table
from airprune.results.statistics import diverged_words

if TYPE_CHECKING:
    from rich.table import Table

    from airprune.cli.options import PaperWidth
    from airprune.results.crossover import Crossover
    from airprune.studies.calls import SweepResult
    from airprune.studies.campaign import Outcome, Row, Sweep

# Beyond these a report takes minutes and its curves cannot be told apart.
_MAX_REPORTED_ROWS = 20
_MAX_REPORTED_RUNS = 200


def sweep(
    scenario: ScenarioName,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUES",
            help="Values to combine, e.g. `plan.deadline_s=0.025,0.03 seed=0-9`; a single value holds for all runs.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for runs and table.  [default: runs/NAME-sweep]")
    ] = None,
    engine: RunsEngine = None,
    workers: RunsAtATime = None,
    scheduler: Scheduler = None,
    tls: Tls = None,
    target: Target = None,
    column: Column = None,
    as_json: TableAsJson = False,
) -> None:
    """Run a scenario for every combination of values, over seeds.

    Several whole runs go on side by side; the table has means over seeds. The same command continues: finished runs
    are not repeated, others go on from their checkpoint.

    Example: `airprune sweep smoke plan.deadline_s=0.012,0.014,0.02 seed=0-4`

    With `--target` and one swept key that is a number, crossover.png shows time to the target over that key, and where
    pruning stops paying: `airprune sweep smoke plan.scheme=optimal,no-pruning plan.deadline_s=0.014,0.02 --target 0.2`
    """
    from airprune.studies.calls import SweepResult
    from airprune.studies.campaign import SweepFolder, crossover_in

    chosen = _sweep(scenario, settings or [], engine=engine, workers=workers, scheduler=scheduler, tls=tls)
    out = out or Path("runs") / f"{chosen.runs[0].scenario.name}-sweep"
    folder = SweepFolder(chosen, out)
    wanted = chosen.runs[0].scenario.rounds.target_accuracy if target is None else target
    with folder.locked():
        failures = run_missing(folder, out)
        result = dataclasses.replace(SweepResult.read(folder, target=target), out=out)
        rows, target = result.rows, result.target
        table = folder.write_table([failure.run for failure in failures], target)
        say(f"Runs: {table}".replace(str(folder.path), str(out)))
        _draw_sweep(result, column)
        crossover = None if wanted is None else crossover_in(rows)
        if crossover is not None and wanted is not None:
            _draw(crossover, wanted, out)
        if as_json:
            print_json(_json(out, rows, failures))
        else:
            print_table(_table(chosen, rows), keys=len(chosen.keys) + 1)
            if target is not None:
                stdout_console().print()
                print_table(_target_table(chosen, rows, target), keys=len(chosen.keys))
            for sentence in crossover.sentences if crossover else ():
                stdout_console().print(sentence, markup=False)
            say(f"Tables for LaTeX: {result.write_latex()}")
            _report(rows, out, target, column)
    end_with(failures)


def _sweep(scenario: str, settings: Sequence[str], **options: Any) -> Sweep:
    """Returns all runs, checked, and their engine: that of `options`, else of the settings or the scenario."""
    from airprune.studies.campaign import Sweep

    chosen = Sweep.of(scenario_from(scenario, []), settings)
    about_engine = [word for word in settings if word.strip().startswith("engine.")]
    return dataclasses.replace(chosen, engine=scenario_from(scenario, about_engine, **options).engine)


def _table(chosen: Sweep, rows: Sequence[Row]) -> Table:
    def names(row: Row) -> list[str]:
        seeds = str(row.num_runs) if len(row.seeds) == row.num_runs else f"{len(row.seeds)} of {row.num_runs}"
        diverged = f", {diverged_words(row.num_diverged, len(row.seeds))}" if row.num_diverged else ""
        return [*_values(row), seeds + diverged]

    clocks = [run.scenario.clock.words for run in chosen.runs]
    return estimates_table([*_headings(chosen), "seeds"], ((names(row), row.estimates) for row in rows), clocks=clocks)


def _target_table(chosen: Sweep, rows: Sequence[Row], target: float) -> Table:
    found = ((_values(row), row.to_target) for row in rows)
    return target_table(_headings(chosen), ((names, row) for names, row in found if row is not None), target)


def _headings(chosen: Sweep) -> Sequence[str]:
    last_words = [key.rpartition(".")[2] for key in chosen.keys]
    return last_words if len(set(last_words)) == len(last_words) else chosen.keys


def _values(row: Row) -> list[str]:
    from airprune.runs.naming import value_text

    return [value_text(value) for value in row.values.values()]


def _draw(crossover: Crossover, target: float, out: Path) -> None:
    from airprune.results.figures.crossover import crossover_figure
    from airprune.results.figures.curves import figure_files, save_figure

    save_figure(crossover_figure(crossover, target), *figure_files(out / "crossover"))
    say(f"Crossover: {out / 'crossover.png'}")


def _draw_sweep(result: SweepResult, column: PaperWidth | None) -> None:
    from airprune.results.figures.curves import PaperColumn, figure_files, save_figure

    paper = None if column is None else PaperColumn(column)
    figure = result.figure(paper=paper) if any(row.seeds for row in result.rows) else None
    if figure is not None:
        save_figure(figure, *figure_files(result.out / "sweep"))
        say(f"Figure: {result.out / 'sweep.png'}")


def _report(rows: Sequence[Row], out: Path, target: float | None, column: PaperWidth | None) -> None:
    from airprune.studies.write_report import write_report

    if not any(row.seeds for row in rows):
        return
    if len(rows) > _MAX_REPORTED_ROWS or sum(row.num_runs for row in rows) > _MAX_REPORTED_RUNS:
        option = "" if target is None else f" --target {target:g}"
        say(f"Report: not written for so many runs; `airprune report {out}{option}` writes it.")
    else:
        say(f"Report: {write_report(out, target=target, paper=column, formats=formats_for(column))}")


def _json(out: Path, rows: Sequence[Row], failures: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "folder": str(out),
        "rows": [
            {
                "values": dict(row.values),
                "seeds": list(row.seeds),
                "runs": row.num_runs,
                **({"diverged": row.num_diverged} if row.num_diverged else {}),
                "estimates": estimates_json(row.estimates),
                **({} if row.to_target is None else {"to_target": row.to_target.as_json()}),
            }
            for row in rows
        ],
        "failed": [
            {"run": failure.run.label, "folder": failure.run.folder_name, "why": failure.trouble}
            for failure in failures
        ],
    }
