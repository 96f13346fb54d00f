"""`airprune league`: a benchmark of all methods under the same rules, in tracks, with intervals."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from airprune.cli.campaign import end_with, run_missing
from airprune.cli.compare import parse_seeds
from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import (
    AsJson,
    Changes,
    Methods,
    RunsAtATime,
    RunsEngine,
    Scheduler,
    Tls,
    names_in,
    schedule_name,
)
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.stopping import terminated_like_ctrl_c
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UsageError

if TYPE_CHECKING:
    from airprune.studies.campaign import CampaignRun, Outcome
    from airprune.studies.league.folder import League


def league(
    overrides: Changes = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Minutes: one seed, no tuning; claims are not decided.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Table I's rounds and samples, ten seeds.")] = False,
    without_tuning: Annotated[
        bool, typer.Option("--without-tuning", help="No tuning runs: every method with the scenario's learning rate.")
    ] = False,
    untuned: Annotated[
        bool, typer.Option("--untuned", help="Run every tuned method untuned as well; as many ranked runs again.")
    ] = False,
    track: Annotated[
        str,
        typer.Option(metavar="TRACKS", help="Tracks in the order of work, e.g. `A,G` or `all`; see docs/league.md."),
    ] = "A",
    methods: Methods = None,
    claims: Annotated[
        bool, typer.Option("--claims", help="Also test the claims of the methods' sources; more runs.")
    ] = False,
    ablations: Annotated[
        bool, typer.Option("--ablations", help="Also switch off parts of the paper's method and of adaptive-bits.")
    ] = False,
    scenario: Annotated[
        str | None,
        typer.Option(metavar="SCENARIO", help="Preset or TOML file with its own rounds.  [default: the schedule's]"),
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="SEEDS", help="e.g. `0-4`.  [default: the schedule's]")] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ledger (played.jsonl) of another league: its runs are not repeated."),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Run nothing: tables, figure and report of the finished runs.")
    ] = False,
    budget_hours: Annotated[
        float | None,
        typer.Option(metavar="H", min=0.0, help="Start no run once so many CPU-hours are used; lists what is dropped."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder.  [default: runs/league-SCHEDULE]")] = None,
    engine: RunsEngine = None,
    workers: RunsAtATime = None,
    scheduler: Scheduler = None,
    tls: Tls = None,
    as_json: AsJson = False,
) -> None:
    """Benchmark all methods under the same rules.

    All have one network, one clock and the same seeds, and are tuned on held-out training images. Writes tables, a
    figure and a report. The same command continues: finished runs are not repeated. `airprune league verify` recomputes
    a league from its ledger.

    Example: `airprune league --quick --methods fp32,mem-sgd,mine --import my_methods.py`
    """
    chosen = _league(
        overrides or [],
        quick=quick,
        full=full,
        without_tuning=without_tuning,
        untuned=untuned,
        track=track,
        methods=methods,
        with_claims=claims,
        with_ablations=ablations,
        scenario=scenario,
        seeds=seeds,
        ledger=ledger,
        out=out,
        options={"engine": engine, "workers": workers, "scheduler": scheduler, "tls": tls},
    )
    if partial and not (chosen.recorded or chosen.store.path.is_dir()):
        raise UsageError(
            f"--partial needs a league that has been begun, got {chosen.out}, which holds none; leave it out, or name "
            "a league's folder with --out or its ledger with --ledger."
        )
    document, failures = _play(chosen, partial=partial, budget_s=None if budget_hours is None else budget_hours * 3600)
    if as_json:
        print_json(document)
    else:
        _print(document)
    say(f"Report: {chosen.out / 'league.html'}")
    end_with(failures)


def _league(
    overrides: Sequence[str],
    *,
    quick: bool,
    full: bool,
    without_tuning: bool,
    untuned: bool,
    track: str,
    methods: str | None,
    with_claims: bool,
    with_ablations: bool,
    scenario: str | None,
    seeds: str | None,
    ledger: Path | None,
    out: Path | None,
    options: Mapping[str, Any],
) -> League:
    from airprune.studies.league.claims import applicable
    from airprune.studies.league.folder import League
    from airprune.studies.league.ledger import read_ledger
    from airprune.studies.league.schedule import BASE, SCHEDULES
    from airprune.studies.league.sources import CLAIMS
    from airprune.studies.league.tracks import tracks_named

    schedule = SCHEDULES[schedule_name(quick, full)]
    if without_tuning:
        schedule = schedule.untuned()
    if seeds:
        schedule = schedule.on(tuple(parse_seeds(seeds)))
    note = schedule.note
    if scenario is None:
        own = [f"{key}={value}" for key, value in schedule.changes.items()]
        base = scenario_from(BASE, [*own, *overrides], **options)
    else:
        base = scenario_from(scenario, overrides, **options)
        note = f"its own schedule, {'tuned' if schedule.is_tuned else 'untuned'}"
    names = None if methods is None else tuple(names_in(methods))
    if names == ():
        raise UsageError(f"--methods must name at least one method, got {methods!r}.")
    chosen = League(
        base=base,
        note=", ".join([note, *overrides]),
        tracks=tuple(tracks_named(track)),
        methods=names,
        seeds=schedule.seeds,
        is_tuned=schedule.is_tuned,
        is_beside=untuned,
        claims=tuple(applicable(CLAIMS, base)) if with_claims else (),
        has_ablations=with_ablations,
        out=out or Path("runs") / f"league-{schedule.name}",
        engine=base.engine,
        recorded={} if ledger is None else read_ledger(ledger),
    )
    chosen.check()
    return chosen


def _play(chosen: League, *, partial: bool, budget_s: float | None) -> tuple[dict[str, Any], list[Outcome]]:
    """Makes all runs, step by step; returns the document and the failures."""
    from airprune.runs.lock import locked

    failures: dict[str, Outcome] = {}
    with terminated_like_ctrl_c(), locked(chosen.out):
        started = time.monotonic()
        try:
            if not partial:
                failures = _run(chosen, budget_s)
            dropped = chosen.open_cells()
            shown = chosen.so_far() if dropped else chosen
            document = shown.write(shown.standings(), shown.verdicts(), dropped=dropped)
        finally:
            chosen.record()
        if dropped and not partial:
            say(f"Not complete: {', '.join(dropped)}. The same command continues.")
        say(f"League: {chosen.out / 'league.csv'}, {time.monotonic() - started:,.0f} s.")
    return document, list(failures.values())


def _run(chosen: League, budget_s: float | None) -> dict[str, Outcome]:
    """Runs what is missing, in steps that depend on the ones before; returns the failures by folder."""
    from airprune.studies.league.effort import hours_text

    failures: dict[str, Outcome] = {}
    chosen.store.path.mkdir(parents=True, exist_ok=True)
    say(f"To run: {chosen.left()}; {chosen.store.num_runs:,} runs are there already.")
    if chosen.claims:
        say(f"For claims: {chosen.left_of_claims()} to begin with; more seeds follow where they are not decided.")
    spent_s = 0.0
    while runs := chosen.wanted():
        if budget_s is not None:
            runs = _within(chosen, runs, budget_s - spent_s)
            if not runs:
                say(f"The budget of {hours_text(budget_s)} is used up.")
                break
        try:
            found = run_missing(chosen.store.campaign_of(runs), chosen.out, announces=False)
        finally:
            lines = [chosen.store.line(run) for run in runs]  # also those of a step that was stopped
        failures |= {outcome.run.folder_name: outcome for outcome in found}
        for run, line in zip(runs, lines, strict=True):
            spent_s += (line.cpu_s or 0.0) if line is not None else 0.0
            if line is None:
                trouble = failures[run.folder_name].trouble if run.folder_name in failures else None
                chosen.store.troubles[run.folder_name] = trouble or "It did not finish."
        chosen.has_run(runs)
        chosen.record()
        say(f"{hours_text(spent_s)} of CPU time used; left: {chosen.left()}.")
    return failures


def _within(chosen: League, runs: Sequence[CampaignRun], left_s: float) -> list[CampaignRun]:
    """Returns the first of the runs that fit into the rest of a budget."""
    from airprune.studies.league.effort import Load

    found: list[CampaignRun] = []
    for run in runs:
        left_s -= chosen.store.effort.of(Load.of(run.scenario)) or 0.0
        if left_s < 0.0:
            break
        found.append(run)
    return found


def _print(document: Mapping[str, Any]) -> None:
    for division in document["divisions"]:
        standings = division["tables"][0]
        numbers = [name for name in standings["header"] if name not in standings["words"]]
        title = f"Track {division['name']}, {division['title']}: {document['note']}"
        table = plain_table(*standings["header"], numbers=numbers, title=title)
        for row in standings["rows"]:
            table.add_row(*map(escape, row))
        print_table(table, keys=2)
        stdout_console().print()
    for ablation in document.get("ablations", []):
        stdout_console().print(f"{ablation['title']}: {ablation['conclusion']}", markup=False)
    for claim in document["claims"]:
        stdout_console().print(f"{claim['verdict']}: {claim['text']} {claim['reason']}", markup=False)
