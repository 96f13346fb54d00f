"""`airprune league verify`: recomputes a league from its ledger, and makes a sample of its runs again."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airprune.cli.campaign import run_missing
from airprune.cli.console import say, stdout_console
from airprune.cli.options import RunsAtATime, RunsEngine
from airprune.cli.scenario_argument import scenario_from
from airprune.errors import UsageError
from airprune.text import counted

if TYPE_CHECKING:
    from airprune.studies.league.ledger import Ledger

league = typer.Typer()
RECORDED = Path("docs/league-played.jsonl")


@league.callback()
def _league() -> None:
    """Benchmark all methods under the same rules."""


@league.command()
def verify(
    ledger: Annotated[
        Path | None,
        typer.Argument(metavar="[LEDGER]", help="A league's ledger, e.g. played.jsonl.  [default: the recorded one]"),
    ] = None,
    sample: Annotated[int, typer.Option(metavar="N", min=0, help="Make so many runs again, at random.")] = 0,
    seed: Annotated[
        int | None, typer.Option(metavar="SEED", min=0, help="Of the sample.  [default: random; it is printed]")
    ] = None,
    engine: RunsEngine = None,
    workers: RunsAtATime = None,
) -> None:
    """Recompute a league from its ledger and compare.

    Recomputed, without running anything: the scenario hash of every line from its preset and settings; tuned values,
    every row and cell of all tables, and the verdicts of claims, from the measurements of the lines, compared with
    league.json and league.csv beside the ledger (`X-results.json`, `X-results.csv` beside `X-played.jsonl`). In a git
    clone, every line's commit must be in the history.

    Run again with `--sample N`: N random lines, from their settings. Accuracies, times, bits and joules of every round
    must be equal to the last bit on the same kernel, torch and CPU family; elsewhere accuracies within 3 points and
    costs within 1 %.

    Exits with 1 and the list of differences if there are any.

    Example: `airprune league verify runs/league-default/played.jsonl --sample 5`
    """
    from airprune.studies.league import verifying
    from airprune.studies.league.ledger import read_ledger

    path = ledger or _recorded_ledger()
    lines = read_ledger(path)
    faults = verifying.faults_of_lines(lines)
    say(f"{len(lines.lines):,} lines of {len(lines):,} runs: {_words(len(faults), 'scenario')}.")
    commits = verifying.unreachable_commits(lines, verifying.own_clone())
    if commits is None:
        say("Commits were not checked: this is no git clone.")
    else:
        say(f"Commits: {_words(len(commits), 'commit')}.")
        faults += commits
    recorded = verifying.Recorded.beside(path)
    if recorded.document is None:
        say(f"Tables were not compared: there is no document beside {path}.")
    else:
        found = verifying.faults_of_tables(recorded, verifying.league_again(recorded.document, lines))
        say(f"Tables and verdicts: {_words(len(found), 'cell')}.")
        faults += found
    if sample:
        faults += _sampled(lines, sample, secrets.randbelow(10**6) if seed is None else seed, engine, workers)
    if faults:
        stdout_console().print(verifying.listed(faults), markup=False, highlight=False)
        raise typer.Exit(1)
    stdout_console().print("Everything agrees.")


def _words(num_faults: int, what: str) -> str:
    return f"{counted(num_faults, what)} differ{'s' if num_faults == 1 else ''}" if num_faults else "all agree"


def _recorded_ledger() -> Path:
    from airprune.studies.league.verifying import own_clone

    path = own_clone().parents[1] / RECORDED
    if not path.is_file():
        raise UsageError(f"LEDGER must be given where there is no {RECORDED}, e.g. runs/league-default/played.jsonl.")
    return path


def _sampled(lines: Ledger, count: int, seed: int, engine: str | None, workers: int | None) -> list[str]:
    """Makes some runs again in a folder of their own; returns the differences."""
    from airprune.studies.league import verifying
    from airprune.studies.league.runs import RunStore

    chosen = verifying.sample_of(lines, count, seed)
    say(f"{counted(len(chosen), 'run')} again, chosen by seed {seed}.")
    settings = scenario_from("paper", [], engine=engine, workers=workers, scheduler=None, tls=None).engine
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="airprune-verify-") as place:
        store = RunStore(Path(place), settings)
        runs = [verifying.run_again(line) for line in chosen]
        run_missing(store.campaign_of(runs), Path(place))
        for line, run in zip(chosen, runs, strict=True):
            again = store.line(run)
            found = verifying.faults_of_run(line, again)
            is_exact = again is not None and verifying.is_same_machine(line, again)
            how = "to the last bit" if is_exact else "within the tolerances"
            say(f"{line.label}: {'differs' if found else f'the same {how}'}.")
            faults += found
    return faults
