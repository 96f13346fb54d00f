"""`airprune league`: all methods against each other, in divisions, with intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from airprune.cli.campaign import end_with, run_missing
from airprune.cli.compare import parse_seeds
from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import AsJson, Scheduler, Tls
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.stopping import terminated_like_ctrl_c
from airprune.cli.sweep import print_wide
from airprune.errors import UsageError

if TYPE_CHECKING:
    from airprune.studies.campaign import CampaignRun, Outcome
    from airprune.studies.league.folder import League


def league(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes that apply to all, e.g. `data.name=mnist`."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Minutes: one seed, no method tuned; claims are not decided.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Table I's rounds and samples, ten seeds.")] = False,
    untuned: Annotated[
        bool, typer.Option("--untuned", help="No trials: everybody with the scenario's learning rate.")
    ] = False,
    division: Annotated[
        str, typer.Option(help="Divisions, e.g. `A,C` or `all`; docs/league.md tells what each is about.")
    ] = "A",
    methods: Annotated[
        str | None,
        typer.Option(help="Methods (`airprune methods`, your own with --import), by commas; by default all."),
    ] = None,
    claims: Annotated[
        bool, typer.Option("--claims", help="Also judge what the methods' sources claim; more runs.")
    ] = False,
    scenario: Annotated[
        str | None,
        typer.Option(help="A preset or TOML file to play on, with its own rounds; by default the schedule's."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, e.g. `0-4`; by default the schedule's.")] = None,
    played: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Another league's played.jsonl: runs recorded there are not run again."),
    ] = None,
    so_far: Annotated[
        bool, typer.Option("--so-far", help="Run nothing: tables, picture and page of what has been played.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder; by default runs/league-SCHEDULE.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="Where whole runs go: serial, processes or dask; the result is the same.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time; by default one per core.")] = None,
    scheduler: Scheduler = None,
    tls: Tls = None,
    as_json: AsJson = False,
) -> None:
    """Play all methods against each other on one network, clock and set of seeds; tables, a picture and a page.

    Everybody is tuned alike on held-out training images. The same command continues: finished runs are not repeated.

    Example: `airprune league --quick --methods fp32,mem-sgd,mine --import my_methods.py`
    """
    chosen = _league(
        overrides or [],
        quick=quick,
        full=full,
        untuned=untuned,
        division=division,
        methods=methods,
        scenario=scenario,
        seeds=seeds,
        played=played,
        out=out,
        options={"engine": engine, "workers": workers, "scheduler": scheduler, "tls": tls},
    )
    if so_far and not (chosen.recorded or chosen.store.path.is_dir()):
        raise UsageError(
            f"--so-far needs a league that has been begun, got {chosen.out}, which holds none; leave it out, or name a "
            "league's folder with --out or its ledger with --played."
        )
    document, failures = _play(chosen, with_claims=claims, so_far=so_far)
    if as_json:
        print_json(document)
    else:
        _print(document)
    say(f"Page: {chosen.out / 'league.html'}")
    end_with(failures)


def _league(
    overrides: Sequence[str],
    *,
    quick: bool,
    full: bool,
    untuned: bool,
    division: str,
    methods: str | None,
    scenario: str | None,
    seeds: str | None,
    played: Path | None,
    out: Path | None,
    options: Mapping[str, Any],
) -> League:
    from airprune.studies.league.folder import League
    from airprune.studies.league.ledger import read_ledger
    from airprune.studies.league.schedule import BASE, SCHEDULES
    from airprune.studies.league.tracks import tracks_named

    if quick and full:
        raise UsageError("--quick and --full exclude each other; give one or neither.")
    schedule = SCHEDULES["quick" if quick else "full" if full else "default"]
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
    names = None if methods is None else tuple(name.strip() for name in methods.split(",") if name.strip())
    if names == ():
        raise UsageError(f"--methods must name at least one method, got {methods!r}.")
    chosen = League(
        base=base,
        note=", ".join([note, *overrides]),
        tracks=tuple(tracks_named(division)),
        methods=names,
        seeds=schedule.seeds,
        is_tuned=schedule.is_tuned,
        out=out or Path("runs") / f"league-{schedule.name}",
        engine=base.engine,
        recorded={} if played is None else read_ledger(played),
    )
    chosen.check()
    return chosen


def _play(chosen: League, *, with_claims: bool, so_far: bool) -> tuple[dict[str, Any], list[Outcome]]:
    """Trials, the runs that count, those of the claims, the untuned ones; the document, and what failed."""
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
    asked: list[CampaignRun] = []
    with terminated_like_ctrl_c(), locked(chosen.out):
        started = time.monotonic()
        try:
            for what, runs_of in stages.items():
                runs = runs_of()
                asked += runs
                if not so_far:
                    failures |= {outcome.run.label: outcome for outcome in _run(chosen, what, runs)}
        finally:
            chosen.record(asked)
        if so_far:
            chosen = chosen.so_far(asked)
        verdicts = claims.verdicts(judged, chosen.base, chosen.seeds, chosen.store)
        troubles = {outcome.run.folder_name: outcome.trouble or "" for outcome in failures.values()}
        document = chosen.write(chosen.standings(troubles), verdicts)
        say(f"League: {chosen.out / 'league.csv'}, {time.monotonic() - started:,.0f} s.")
    return document, list(failures.values())


def _run(chosen: League, what: str, runs: Sequence[CampaignRun]) -> list[Outcome]:
    """Runs what is missing, seed by seed, so that a league that is stopped has whole seeds; what failed."""
    if not runs:
        return []
    campaign = chosen.store.campaign_of(sorted(runs, key=lambda run: run.scenario.seed))
    chosen.store.path.mkdir(parents=True, exist_ok=True)
    num_recorded = len({run.folder_name for run in runs}) - len(campaign.runs)
    say(f"{len(campaign.runs):,} {what}" + (f" beside {num_recorded:,} recorded ones" if num_recorded else ""))
    return run_missing(campaign, chosen.out)


def _print(document: Mapping[str, Any]) -> None:
    for division in document["divisions"]:
        standings = division["tables"][0]
        table = Table(
            title=f"Track {division['name']}, {division['title']}: {document['note']}",
            title_justify="left",
            header_style="bold",
            box=None,
            pad_edge=False,
        )
        for name in standings["header"]:
            table.add_column(name, justify="left" if name in standings["words"] else "right")
        for row in standings["rows"]:
            table.add_row(*map(escape, row))
        print_wide(table)
        stdout_console().print()
    for claim in document["claims"]:
        stdout_console().print(f"{claim['verdict']}: {claim['text']} {claim['reason']}", markup=False)
