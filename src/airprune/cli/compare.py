"""`airprune compare`: schemes or methods side by side over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune.cli.campaign import run_missing
from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import (
    Changes,
    Column,
    Engine,
    FleetTable,
    Log,
    Methods,
    ScenarioName,
    Scheduler,
    TableAsJson,
    Target,
    Tls,
    Workers,
    formats_for,
    names_in,
)
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.tables import differences_table, estimates_json, estimates_table, print_table, target_table
from airprune.errors import UsageError

if TYPE_CHECKING:
    from airprune.cli.options import PaperWidth
    from airprune.scenario import Scenario
    from airprune.studies.calls import Comparison
    from airprune.studies.comparison import Variant

MAX_RUNS = 10_000


def compare(
    scenario: ScenarioName,
    overrides: Changes = None,
    schemes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Schemes, separated by commas.  [default: optimal,no-pruning, unless --methods is given]",
        ),
    ] = None,
    methods: Methods = None,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="VARIANT", help="One more variant, `NAME: key=value key=value`; may be repeated."),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="SEEDS", help="e.g. `0-4` or `1,5,9`.")] = "0",
    target: Target = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="VARIANT",
            help="The variant that the others are compared with, seed by seed.  [default: the first without pruning]",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for runs, table and curves.")] = Path("runs/compare"),
    fleet: FleetTable = None,
    engine: Engine = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    tls: Tls = None,
    column: Column = None,
    log: Log = None,
    as_json: TableAsJson = False,
) -> None:
    """Compare schemes or methods over seeds, on the same network.

    Every variant has the same data and fading, too. The same command continues: finished runs are not repeated.

    Example: `airprune compare smoke --methods adaptive-pruning,frozen-pruning,fp32 --seeds 0-2`
    """
    base = scenario_from(
        scenario, overrides or [], engine=engine, workers=workers, scheduler=scheduler, tls=tls, fleet=fleet
    )
    if schemes is None:
        schemes = "" if methods is not None else "optimal,no-pruning"
    variants = variants_of(base, names_in(schemes), names_in(methods or ""), also or [])
    chosen = parse_seeds(seeds)
    if len(variants) * len(chosen) > MAX_RUNS:
        raise UsageError(
            f"--seeds and the variants make {len(variants) * len(chosen):,} runs; at most {MAX_RUNS:,} are allowed."
        )

    from airprune.studies.calls import Comparison
    from airprune.studies.comparison import campaign, check_reference, note_variants
    from airprune.studies.write_report import write_report

    check_reference("--reference", reference, variants)
    runs = campaign(variants, chosen, out, callbacks=log or [])
    for run in runs.runs:
        if (folder := runs.run_folder(run)).has_run:
            folder.check_scenario(run.scenario)
    note_variants(variants, out)
    run_missing(runs, out)
    study = Comparison.read(variants, chosen, out, target=target, reference=reference)
    _draw(study, column)
    if as_json:
        print_json({name: _json(study, name) for name in study.estimates})
        return
    clocks = [variant.scenario.clock.words for variant in variants]
    rates = study.learning_rates
    rows = (
        ([study.label(name), *([f"{rates[name]:g}"] if rates else [])], row) for name, row in study.estimates.items()
    )
    print_table(estimates_table(["variant", *(["learning rate"] if rates else [])], rows, clocks=clocks))
    if study.target is not None:
        stdout_console().print()
        reached = (([name], row) for name, row in study.to_target.items())
        print_table(target_table(["variant"], reached, study.target))
    if study.differences and len(chosen) > 1:
        stdout_console().print()
        differences = (([study.label(name)], row) for name, row in study.differences.items())
        print_table(differences_table(["variant"], differences, str(study.reference)))
    for sentence in study.findings():
        stdout_console().print(sentence, soft_wrap=True, highlight=False, markup=False)
    say(f"Tables for LaTeX: {study.write_latex()}")
    say(f"Report: {write_report(out, target=study.target, paper=column, formats=formats_for(column))}")


def _json(study: Comparison, name: str) -> dict[str, Any]:
    reached = study.to_target.get(name)
    return {
        **estimates_json(study.estimates[name]),
        **({} if reached is None else {"to_target": reached.as_json()}),
        **({"diverged": study.diverged[name]} if name in study.diverged else {}),
        **({"minus": {study.reference: estimates_json(mine)}} if (mine := study.differences.get(name)) else {}),
    }


def variants_of(base: Scenario, schemes: Sequence[str], methods: Sequence[str], also: Sequence[str]) -> list[Variant]:
    """Returns the schemes, the methods, and the variants that `--also` spells out."""
    from airprune.studies.comparison import Variant, checked, method_variants, scheme_variants

    variants = scheme_variants(base, schemes) + method_variants(base, methods)
    for words in also:
        name, colon, changes = words.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--also must read `NAME: key=value …`, got {words!r}.")
        variants.append(Variant(name=name.strip(), scenario=base.with_overrides(changes.split())))
    return checked(variants)


def parse_seeds(text: str) -> list[int]:
    """Returns the seeds of `0-4`, of `1,5,9` or of both mixed."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low, high = int(first), int(last) if dash else int(first)
        except ValueError:
            raise UsageError(f"--seeds must be like 0-4 or 1,5,9, got {text!r}.") from None
        if high < low or high - low >= MAX_RUNS:
            raise UsageError(f"--seeds must be like 0-4 or 1,5,9, got {text!r}.")
        seeds.extend(range(low, high + 1))
    if len(set(seeds)) != len(seeds):
        raise UsageError(f"--seeds must name each seed once, got {text!r}.")
    return seeds


def _draw(study: Comparison, column: PaperWidth | None) -> None:
    from airprune.results.figures.curves import PaperColumn, figure_files, save_figure

    save_figure(
        study.figure(paper=None if column is None else PaperColumn(column)), *figure_files(study.out / "curves")
    )
    say(f"Curves: {study.out / 'curves.png'}")
