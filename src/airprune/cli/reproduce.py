"""`airprune reproduce`: the paper's tables, figures and claims, with verdicts."""

from __future__ import annotations

import dataclasses
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airprune.cli.compare import parse_seeds
from airprune.cli.console import print_json, say
from airprune.cli.options import AsJson, schedule_name
from airprune.cli.reproduce_radio import reproduce_radio
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UsageError, WorkFailed
from airprune.studies.paper.table2 import Cell, table2

if TYPE_CHECKING:
    from rich.table import Table

    from airprune.studies.paper.reproduction import Artefact, Reproduction


class What(StrEnum):
    table1 = "table1"
    table2 = "table2"
    fig2 = "fig2"
    fig3 = "fig3"
    fig4 = "fig4"
    fair = "fair"
    fig5 = "fig5"
    fig6 = "fig6"
    frozen = "frozen"
    bound = "bound"
    radio = "radio"
    all = "all"


def reproduce(
    what: Annotated[What, typer.Argument(metavar="ARTEFACT", help=f"Table or figure of the paper: {', '.join(What)}.")],
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Minutes instead of an hour; one seed, too few to decide claims about runs."),
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Table I in full, on both presets; more than a day.")] = False,
    seeds: Annotated[str | None, typer.Option(metavar="SEEDS", help="e.g. `0-4`.  [default: the profile's]")] = None,
    placements: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="For table2: placements to average over.")
    ] = 40,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder.  [default: reproduction/PROFILE]")] = None,
    ledger: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="For radio: played.jsonl of a league or a study, whose runs are not repeated."
        ),
    ] = None,
    only_finished: Annotated[
        bool, typer.Option("--only-finished", help="For radio: judge finished runs and train none.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper: tables, figures, verdicts on its claims.

    Runs that several figures share are made once and kept, so an interrupted or repeated command continues. `radio`
    is no figure of the paper and not in `all`: its findings judged again on radios that are more real.

    Example: `airprune reproduce all --quick`
    """
    if what is What.radio:
        if quick or full:
            raise UsageError("reproduce radio has one schedule; give --seeds 0 for fewer runs, not --quick or --full.")
        chosen = parse_seeds(seeds) if seeds else None
        reproduce_radio(chosen, out, ledger or [], only_finished=only_finished, as_json=as_json)
        return
    if ledger or only_finished:
        raise UsageError(f"--ledger and --only-finished are for reproduce radio, got {what.value}.")
    if what is What.table2 and out is None:
        _table2(placements, as_json=as_json)
        return
    reproduction, artefacts = _reproduction(what, quick=quick, full=full, seeds=seeds, out=out)
    started = time.monotonic()
    _run(reproduction, artefacts)
    claims, files = _write(reproduction, artefacts)
    say(f"{len(files)} files in {reproduction.out}, {time.monotonic() - started:,.0f} s.")
    if as_json:
        print_json(
            {
                "artefact": what.value,
                "profile": reproduction.profile.name,
                "seeds": list(reproduction.seeds),
                "folder": str(reproduction.out),
                "files": [path.name for path in files],
                "claims": claims,
            }
        )
        return
    tables = {name for artefact in artefacts for name in artefact.tables}
    mine = [claim for claim in claims if set(claim["tables"]) & tables]
    table = _parameter_table(reproduction.out / "table1.csv") if what is What.table1 else _claims_table(mine)
    print_table(table, keys=0)


def _reproduction(
    what: What, *, quick: bool, full: bool, seeds: str | None, out: Path | None
) -> tuple[Reproduction, list[Artefact]]:
    from airprune.studies.paper.profiles import PROFILES
    from airprune.studies.paper.reproduction import ARTEFACTS, Reproduction

    profile = PROFILES[schedule_name(quick, full)]
    chosen = tuple(parse_seeds(seeds)) if seeds else profile.seeds
    out = out or Path("reproduction") / profile.name
    wanted = ARTEFACTS if what is What.all else (what.value, *ARTEFACTS[what.value].needs)
    names = [name for name in ARTEFACTS if name in wanted]
    return Reproduction(profile=profile, seeds=chosen, out=out), [ARTEFACTS[name] for name in names]


def _run(reproduction: Reproduction, artefacts: list[Artefact]) -> None:
    """Runs everything that is missing; a run that fails does not stop the others, but then the command fails."""
    from airprune.cli.campaign import run_missing

    campaign = reproduction.campaign(artefacts)
    failures = run_missing(campaign, reproduction.out)
    if failures:
        raise WorkFailed(
            f"{len(failures)} of {len(campaign.runs)} runs failed, the first of them {failures[0].run.label}: "
            f"{failures[0].trouble} The same command tries them again and keeps what is done."
        )


def _write(reproduction: Reproduction, artefacts: list[Artefact]) -> tuple[list[dict[str, Any]], list[Path]]:
    from airprune.studies.paper.reproduction import write_claims
    from airprune.studies.write_report import write_report

    reproduction.out.mkdir(parents=True, exist_ok=True)
    files = [path for artefact in artefacts for path in reproduction.write(artefact)]
    claims = write_claims(reproduction.out)
    files += [reproduction.out / "claims.json", write_report(reproduction.out)]
    return claims, files


_STYLES = {"good": "green", "fair": "yellow", "bad": "red", "open": "dim"}


def _claims_table(claims: list[dict[str, Any]]) -> Table:
    from airprune.studies.claims import Verdict

    table = plain_table("where", "claim", "verdict", "why", title="Claims")
    for claim in claims:
        style = _STYLES[Verdict(claim["verdict"]).badge]
        table.add_row(claim["where"], claim["text"], f"[{style}]{claim['verdict']}[/{style}]", claim["reason"])
    return table


def _parameter_table(path: Path) -> Table:
    from airprune.results.tidy import read_rows

    headings = ("parameter", "printed", "setting", "paper", "paper-converged", "agrees")
    table = plain_table(*headings, title="Table I: as printed, and in the presets")
    for row in read_rows(path):
        cells = (f"{value:g}" if isinstance(value, float) else str(value) for value in row.values())
        table.add_row(*cells)
    return table


def _table2(placements: int, *, as_json: bool) -> None:
    cells = table2(range(placements))
    if as_json:
        rows = [{**dataclasses.asdict(cell), "deviation": cell.deviation} for cell in cells]
        print_json({"artefact": "table2", "placements": placements, "cells": rows})
        return
    print_table(_latency_table(cells, placements), keys=2)


def _latency_table(cells: list[Cell], placements: int) -> Table:
    title = f"Table II: latency of one edge round in ms, mean ± spread over {placements} placements"
    numbers = ("airprune", "paper", "deviation")
    table = plain_table("network", "scheme", *numbers, numbers=numbers, title=title)
    for cell in cells:
        table.add_row(
            cell.topology,
            cell.scheme,
            f"{cell.mean_ms:.1f} ± {cell.spread_ms:.1f}",
            f"{cell.paper_ms:g}" + (f" ± {cell.paper_spread_ms:g}" if cell.paper_spread_ms else ""),
            f"{round(cell.deviation, 3) + 0.0:+.1%}",
            end_section=cell.scheme == "no-pruning",
        )
    return table
