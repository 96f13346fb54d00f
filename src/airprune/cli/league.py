"""`airprune league`: a benchmark of all methods under the same rules, in tracks, with intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
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
    untuned: Annotated[
        bool, typer.Option("--untuned", help="No tuning runs: every method with the scenario's learning rate.")
    ] = False,
    track: Annotated[
        str, typer.Option(metavar="TRACKS", help="Tracks, e.g. `A,C` or `all`; docs/league.md describes them.")
    ] = "A",
    methods: Methods = None,
    claims: Annotated[
        bool, typer.Option("--claims", help="Also test the claims of the methods' sources; more runs.")
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
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder.  [default: runs/league-SCHEDULE]")] = None,
    engine: RunsEngine = None,
    workers: RunsAtATime = None,
    scheduler: Scheduler = None,
    tls: Tls = None,
    as_json: AsJson = False,
) -> None:
    """Benchmark all methods under the same rules.

    All have one network, one clock and the same seeds, and are tuned on held-out training images. Writes tables, a
    figure and a report. The same command continues: finished runs are not repeated.

    Example: `airprune league --quick --methods fp32,mem-sgd,mine --import my_methods.py`
    """
    chosen = _league(
        overrides or [],
        quick=quick,
        full=full,
        untuned=untuned,
        track=track,
        methods=methods,
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
    document, failures = _play(chosen, with_claims=claims, partial=partial)
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
    untuned: bool,
    track: str,
    methods: str | None,
    scenario: str | None,
    seeds: str | None,
    ledger: Path | None,
    out: Path | None,
    options: Mapping[str, Any],
) -> League:
    from airprune.studies.league.folder import League
    from airprune.studies.league.ledger import read_ledger
    from airprune.studies.league.schedule import BASE, SCHEDULES
    from airprune.studies.league.tracks import tracks_named

    schedule = SCHEDULES[schedule_name(quick, full)]
    if untuned:
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
        out=out or Path("runs") / f"league-{schedule.name}",
        engine=base.engine,
        recorded={} if ledger is None else read_ledger(ledger),
    )
    chosen.check()
    return chosen


def _play(chosen: League, *, with_claims: bool, partial: bool) -> tuple[dict[str, Any], list[Outcome]]:
    """Makes all runs, those of tuning first; returns the document and the failures."""
    from airprune.runs.lock import locked
    from airprune.studies.league import claims
    from airprune.studies.league.sources import CLAIMS

    judged = claims.applicable(CLAIMS, chosen.base) if with_claims else []
    stages: Mapping[str, Callable[[], list[CampaignRun]]] = {
        "tuning runs": chosen.tuning_runs,
        "ranked runs": chosen.ranked_runs,
        "runs for claims": lambda: claims.runs_for(judged, chosen.base, chosen.seeds),
        "untuned runs": chosen.untuned_runs,
    }
    failures: dict[str, Outcome] = {}
    planned: list[CampaignRun] = []
    with terminated_like_ctrl_c(), locked(chosen.out):
        started = time.monotonic()
        try:
            for what, runs_of in stages.items():
                runs = runs_of()
                planned += runs
                if not partial:
                    failures |= {outcome.run.label: outcome for outcome in _run(chosen, what, runs)}
        finally:
            chosen.record(planned)
        if partial:
            chosen = chosen.so_far(planned)
        verdicts = claims.verdicts(judged, chosen.base, chosen.seeds, chosen.store)
        troubles = {outcome.run.folder_name: outcome.trouble or "" for outcome in failures.values()}
        document = chosen.write(chosen.standings(troubles), verdicts)
        say(f"League: {chosen.out / 'league.csv'}, {time.monotonic() - started:,.0f} s.")
    return document, list(failures.values())


def _run(chosen: League, what: str, runs: Sequence[CampaignRun]) -> list[Outcome]:
    """Runs what is missing, seed by seed, so that a league that is stopped has whole seeds; returns the failures."""
    if not runs:
        return []
    campaign = chosen.store.campaign_of(sorted(runs, key=lambda run: run.scenario.seed))
    chosen.store.path.mkdir(parents=True, exist_ok=True)
    num_recorded = len({run.folder_name for run in runs}) - len(campaign.runs)
    say(f"{len(campaign.runs):,} {what}" + (f"; {num_recorded:,} are recorded already" if num_recorded else ""))
    return run_missing(campaign, chosen.out)


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
    for claim in document["claims"]:
        stdout_console().print(f"{claim['verdict']}: {claim['text']} {claim['reason']}", markup=False)
